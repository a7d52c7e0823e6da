"""How much longer each rank needs for its own part of a step than the others, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.shares import Share, share_of_median
from pyddpdiag.analyse.step_matrix import StepMatrix, extra_ms, step_walls


@dataclass(frozen=True, eq=False)
class Lateness:
    """The ranks side by side, in the steps in which the own time of all is known.

    Attributes:
        ranks: of the columns.
        rows: of the step matrix.
        step: the number of each row's step.
        wall: of each step; ms.
        extra: by how much each rank needs longer than the ranks' lower median, or than the rank `than`; ms,
            [steps, ranks].
        waits: the same of the time that it waits for data.
        shares: the median of `extra` as a share of a step, rank by rank.
        than: the column of the rank that all are compared with; None: with their lower median.
    """

    ranks: tuple[int, ...]
    rows: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    wall: Float64
    extra: Float64
    waits: Float64
    shares: tuple[Share, ...]
    than: int | None = None

    def more(self, values: Float64) -> Float64:
        """How much more of something each rank has, compared in the same way; [steps, ranks]."""
        return extra_ms(values) if self.than is None else np.asarray(values - values[:, self.than, None])

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.step)


def lateness(steps: StepMatrix, than: int | None = None) -> Lateness:
    """The lateness of every rank in the judged steps; no steps where own times are not known."""
    rows = np.flatnonzero(~np.isnan(steps.own).any(axis=1))
    nothing = np.empty((0, len(steps.ranks)))
    found = Lateness(steps.ranks, rows, steps.step[rows], step_walls(steps)[rows], nothing, nothing, (), than)
    extra, waits = nothing, nothing
    if len(rows):
        extra, waits = found.more(steps.own[rows]), found.more(np.nan_to_num(steps.data_wait[rows]))
    shares = tuple(share_of_median(column, steps.wall_ms) for column in extra.T)
    return replace(found, extra=extra, waits=waits, shares=shares)
