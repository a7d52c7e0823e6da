"""What holds only in a part of a run: the same thresholds on windows of neighbouring steps."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.grouped import Float64

STEPS: Final = 12
"""Steps in a window."""

OVER: Final = 11
"""So many of them must be over the threshold: the median is over it with 99% confidence then (`sure_median`)."""

BY_CHANCE: Final = 13 / 4096
"""The probability that a window is, if the true median is just at the threshold: 11 or 12 heads of 12."""

FALSE_ALARM: Final = 0.01
"""The probability that any of the windows tried gives a false alarm."""


@dataclass(frozen=True)
class Span:
    """Rows of a step matrix, `begin` to before `end`; `lasting`: up to the run's end."""

    begin: int
    end: int
    lasting: bool

    @property
    def rows(self) -> slice:
        """The rows as an index."""
        return slice(self.begin, self.end)

    def between(self, step: npt.NDArray[np.int64]) -> tuple[int, int | None]:
        """The first and the last step, given the number of each row's; None: it lasts to the run's end."""
        return int(step[self.begin]), None if self.lasting else int(step[self.end - 1])

    def words(self, step: npt.NDArray[np.int64]) -> str:
        """`from step 120 on` or `in steps 120 to 180`."""
        since, until = self.between(step)
        return f"from step {since} on" if until is None else f"in steps {since} to {until}"


def sustained(excess: Float64, series: int = 1) -> Span | None:
    """The longest stretch of windows that are over a threshold; None if none is long enough.

    At least two neighbouring windows must be, and the more windows are tried, the more.

    Args:
        excess: by how much each step is over the threshold, below 0: it is not; NaN: not known, and not over it.
        series: how many series (ranks) are tried in this way.
    """
    count = len(excess) // STEPS
    if count < 2:
        return None
    over = np.nan_to_num(excess, nan=-1.0) > 0
    clear = over[: count * STEPS].reshape(count, STEPS).sum(axis=1) >= OVER
    needed = max(2, ceil(log(count * series / FALSE_ALARM) / log(1 / BY_CHANCE)))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], clear.astype(np.int8), [0]])))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins) or (ends - begins).max() < needed:
        return None
    longest = int((ends - begins).argmax())
    begin, end = int(begins[longest]) * STEPS, int(ends[longest]) * STEPS
    # It seldom begins or ends where a window does.
    while begin > 0 and over[begin - 1]:
        begin -= 1
    while not over[begin]:
        begin += 1
    while end < len(over) and over[end]:
        end += 1
    while not over[end - 1]:
        end -= 1
    return Span(begin, end, len(over) - end <= 2)


def by_window(values: Float64) -> Float64:
    """The median of each window, once per row; the rows after the last whole window take its value."""
    count = len(values) // STEPS
    if not count:
        return np.full(len(values), np.nan)
    middle = np.nanmedian(_known(values[: count * STEPS].reshape(count, STEPS)), axis=1)
    return np.asarray(middle[np.minimum(np.arange(len(values)) // STEPS, count - 1)])


def _known(rows: Float64) -> Float64:
    """Windows of which nothing is known count as endless: numpy warns of them otherwise."""
    unknown: npt.NDArray[np.bool_] = np.all(np.isnan(rows), axis=1)
    return np.where(unknown[:, None], np.inf, rows)
