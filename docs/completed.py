"""What the site adds: lists of kinds become tables with what the package knows of each, and the catalog's a table."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyddpdiag.analyse import catalog
from pyddpdiag.messages.explain import CATALOG
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import KINDS, Kind

LIST = re.compile(r"(?:^- `\w+`: .+\n)+", re.MULTILINE)


def findings(page: str) -> str:
    """The page of a family, with severity, headline and facts of each kind that it lists."""

    def drawn(found: re.Match[str]) -> str:
        items = (line.removeprefix("- `").split("`: ", 1) for line in found[0].splitlines())
        return _table(("kind", "severity", "in short", "when"), *(_kind(*item) for item in items))

    return LIST.sub(drawn, page, count=1)


def messages(page: str) -> str:
    """The doctor's page, with kind, role, cause and fix of each message of the catalog."""
    rows = []
    for message in CATALOG:
        words = f"{message.cause} {message.fix}".replace("|", "\\|").replace("<", "&lt;")
        rows.append((f"`{message.kind}`", message.role.name.lower(), words))
    table = _table(("kind", "role", "behind it, and what to do"), *rows)
    return page.replace("<!-- catalog -->\n", table)


def _table(head: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ("---",) * len(head), *rows))


def _kind(name: str, when: str) -> tuple[str, ...]:
    kind = KINDS[name]
    example = Finding(name, "note", "", "high", rank=1)
    facts = " ".join((when, *_facts(kind)))
    return f"`{name}`", ", ".join(kind.severities), kind.in_short(example), facts


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


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
