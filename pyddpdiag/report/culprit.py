"""Which part of whose step the verdict blames: the one that the text and the page mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.model.cube import OWN_PARTS, PART_OF
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport

_SEEN: Final = 0.05
"""Of a step: what takes less more of it than elsewhere is not to be seen there."""


@dataclass(frozen=True)
class Culprit:
    """What is marked: a part in `row`, in all rows if `everywhere`, by this finding."""

    row: int
    part: str
    finding: Finding
    everywhere: bool = False

    def rows(self, count: int) -> range:
        """Of so many rows, those in which the part is marked."""
        return range(count) if self.everywhere else range(self.row, self.row + 1)


def culprit(
    report: RunReport, rows: Sequence[Sequence[int]], values: Mapping[str, Sequence[float]]
) -> Culprit | None:
    """What the first finding about time blames, if it can be seen.

    `rows`: the ranks of each row. `values`: of each part that is shown, its milliseconds in each row.
    """
    row_of = {rank: at for at, ranks in enumerate(rows) for rank in ranks}
    for finding in report.verdict.findings:
        if finding.severity == "note":
            continue
        found = _of_rank(finding, row_of, values) or _of_all(finding, row_of, values)
        if found is not None:
            return found
    return None


def beside(values: Sequence[float], row: int) -> float:
    """What the other rows have of it."""
    return float(np.median([value for at, value in enumerate(values) if at != row] or [0.0]))


def _step(values: Mapping[str, Sequence[float]], row: int) -> float:
    return sum(each[row] for each in values.values())


def _of_rank(
    finding: Finding, row_of: Mapping[int, int], values: Mapping[str, Sequence[float]]
) -> Culprit | None:
    """A rank that the others wait for: the part of its own time that it has more of than they."""
    row = None if finding.rank is None else row_of.get(finding.rank)
    marks = kind_of(finding).marks
    if marks not in ("own", "life") or row is None:
        return None
    named = PART_OF.get(finding.cause or "", "")
    if named not in values:
        named = max(
            (p for p in OWN_PARTS if p in values), key=lambda p: values[p][row] - beside(values[p], row)
        )
    # What a rank does alone may lie outside of every step.
    if marks == "life" and values[named][row] - beside(values[named], row) < _SEEN * _step(values, row):
        return None
    return Culprit(row, named, finding)


def _of_all(
    finding: Finding, row_of: Mapping[int, int], values: Mapping[str, Sequence[float]]
) -> Culprit | None:
    """A part that holds up all ranks, or one that is named."""
    part = kind_of(finding).marks
    if not any(values.get(part, ())):
        return None
    row = None if finding.rank is None else row_of.get(finding.rank)
    if row is not None:
        return Culprit(row, part, finding)
    return Culprit(len(values[part]) - 1, part, finding, everywhere=True)
