"""What the parts of a step are called and coloured in every chart of a run, and which ranks are drawn together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import Anatomy, alike
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.cube import NAMES, PARTS
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import ranges

COLOURS: Final = {
    "data_wait": "data",
    "compute": "compute",
    "phase": "phase",
    "core": "core",
    "blocked": "blocked",
    "other": "other",
    "late": "late",
    "communication": "wire",
}
LEAST: Final = 0.001
"""Of all time: a part that takes less everywhere is not drawn."""


def name(part: str, found: Anatomy) -> str:
    """What a part is called. Where the processor was not read, nobody knows whether a rank computes."""
    return "compute or asleep" if part == "compute" and not found.split else NAMES[part]


def drawn_parts(found: Anatomy) -> list[str]:
    """The parts that take time on some rank."""
    total = {part: float(np.nansum(found.parts[part])) for part in PARTS}
    least = LEAST * sum(total.values())
    return [part for part in PARTS if total[part] > least or part == "compute"]


def groups(found: Anatomy, report: RunReport) -> list[tuple[int, ...]]:
    """The places of ranks that are drawn as one; those that findings blame stand alone."""
    return alike(found, {finding.rank for finding in report.verdict.findings if finding.rank is not None})


def label(found: Anatomy, group: Sequence[int]) -> str:
    """What a group of ranks is called."""
    mine = [found.ranks[place] for place in group]
    return f"rank {mine[0]}" if len(mine) == 1 else f"{len(mine)} ranks: {ranges(mine)}"


def mean(found: Anatomy, part: str, group: Sequence[int]) -> Float64:
    """A part on the ranks of a group, for each stretch; NaN = known of none."""
    values = found.parts[part][:, list(group)]
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=1)
    count = known.sum(axis=1)
    return np.asarray(np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0))


def said(found: Anatomy, of: Sequence[tuple[int, ...]]) -> str:
    """That ranks are drawn together, if they are."""
    if all(len(group) == 1 for group in of):
        return ""
    return " Ranks that are alike are drawn as one, by their mean."
