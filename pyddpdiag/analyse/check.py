"""What a check is, and how it tells a finding's line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import KINDS

Basis = Literal["all ranks", "waits", "own times", "records"]
"""What findings rest on, and so what is left of them where traces are missing or damaged (`analyse/partial.py`).

`records`: on what single records or processes say; they stand whatever else is missing. `own times`: on what each rank
does by itself; they stand where other ranks have no trace, but for warnings of low confidence. `waits`: on ranks that
wait, for which a rank without a trace may be the reason. What does not stand becomes an observation of low confidence.
`all ranks`: on everything; then there is not a finding at all.
"""


@dataclass(frozen=True)
class Check:
    """Looks for one cause, or for a few that it can distinguish in one look.

    Attributes:
        kinds: of its findings, each with a row in the table of kinds (`model/kinds`).
        look: yields what it finds. Works on the view's tables, prints nothing, and never fails because of a
            trace's content.
        per_group: it compares ranks' times, so it looks at ranks that meet, and at each set of them where a run has
            several.
        rests_on: what its findings need; a check that does not say so needs the whole traces of all ranks.
    """

    kinds: tuple[str, ...]
    look: Callable[[RunView], Iterable[Finding]]
    per_group: bool = False
    rests_on: Basis = "all ranks"

    @property
    def unless(self) -> frozenset[str]:
        """Kinds that say why: it is skipped if an earlier check found any of them, and not only as a note."""
        return frozenset(each for kind in self.kinds for each in KINDS[kind].explained_by)


def with_line(finding: Finding, where: Where | None, of: str, otherwise: str | None = None) -> Finding:
    """A finding with the line that explains it, if that is known.

    Args:
        finding: without the line.
        where: the line.
        of: what has its share there, as `the pause`.
        otherwise: of the advice to look at it (`Where.advice`); None: the finding's own advice stays, unless there is
            a cure for what the line calls.
    """
    if where is None:
        return finding
    return replace(
        finding,
        message=f"{finding.message} {where.says(of)}.",
        where=str(where.line),
        evidence={**finding.evidence, **where.facts},
        advice=where.cure or finding.advice if otherwise is None else where.advice(otherwise),
    )
