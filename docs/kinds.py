"""What the pages of findings take from the table of kinds when the site is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pyddpdiag.analyse import catalog
from pyddpdiag.model import Finding
from pyddpdiag.model.kinds import KINDS, Kind

HEAD = "| kind | when |\n|---|---|\n"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)


def completed(page: str) -> str:
    """The page of a family with severity, headline and facts of each kind that its table lists."""
    return ROW.sub(lambda row: _row(KINDS[row[1]], row[2]), page).replace(
        HEAD, "| kind | severity | in short | when |\n|---|---|---|---|\n"
    )


def _row(kind: Kind, when: str) -> str:
    example = replace(Finding(kind.name, "note", "", "high"), rank=1)
    cells = (
        f"`{kind.name}`",
        ", ".join(kind.severities),
        kind.in_short(example),
        " ".join((when, *_facts(kind))),
    )
    return f"| {' | '.join(cells)} |"


def _facts(kind: Kind) -> Iterator[str]:
    basis = {name: check.rests_on for check in catalog.CHECKS for name in check.kinds}
    if kind.name in basis:
        yield f"<br>*Rests on {basis[kind.name]}.*"
    if kind.explained_by:
        yield f"*Not said where these say why: {_names(kind.explained_by)}.*"
    if kind.leads_to:
        yield f"*Leads to {_names(kind.leads_to)}.*"
    if kind.saves:
        yield f"*Cure: {_names(tuple(kind.saves))}.*"


def _names(kinds: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in kinds)
