"""What holds only in a part of a run: the stretches of steps in which something is over its threshold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import CHANCE, NEARLY_ALL, SEVERAL, TWICE, WINDOW
from pyddpdiag.analyse.chance import at_least
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import median


@dataclass(frozen=True)
class Span:
    """Rows of a step matrix, `begin` to before `end`; `lasting`: up to the run's end."""

    begin: int
    end: int
    lasting: bool

    def __len__(self) -> int:
        """Number of rows."""
        return self.end - self.begin

    @property
    def rows(self) -> slice:
        """The rows as an index."""
        return slice(self.begin, self.end)


@dataclass(frozen=True)
class Stretches:
    """The parts of a run in which something holds, at least one, in their order; `whole`: all of the run is."""

    spans: tuple[Span, ...]
    whole: bool = False

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """All their rows of the step matrix, as an index."""
        return np.concatenate([np.arange(span.begin, span.end) for span in self.spans])

    def between(self, step: npt.NDArray[np.int64]) -> tuple[int, int | None]:
        """The first and the last step, given the number of each row's; None: it lasts to the run's end."""
        last = self.spans[-1]
        return int(step[self.spans[0].begin]), None if last.lasting else int(step[last.end - 1])

    def words(self, step: npt.NDArray[np.int64]) -> str:
        """` from step 120 on`, ` in steps 120 to 180`, or several of these; nothing of the whole run."""
        if self.whole:
            return ""
        said = [f"in steps {step[span.begin]} to {step[span.end - 1]}" for span in self.spans]
        if self.spans[-1].lasting:
            said[-1] = f"from step {step[self.spans[-1].begin]} on"
        if len(said) > SEVERAL:
            since, until = self.between(step)
            when = f"from step {since} on" if until is None else f"between step {since} and step {until}"
            return f" in {len(said)} stretches {when}"
        return " " + " and ".join([", ".join(said[:-1])] * (len(said) > 1) + said[-1:])

    def evidence(self, values: Float64, name: str) -> dict[str, float | int | None]:
        """What a finding about these stretches says: what was usual before them and after, in ms, and how many there
        are."""
        first, last = self.spans[0], self.spans[-1]
        before, after = (median(part) for part in (values[: first.begin], values[last.end :]))
        return {
            f"{name}_before_ms": None if np.isnan(before) else before,
            f"{name}_after_ms": None if np.isnan(after) else after,
            "stretches": len(self.spans),
        }


def all_of(rows: int) -> Stretches:
    """The whole of a run of so many rows."""
    return Stretches((Span(0, rows, True),), whole=True)


def stretches(excess: Float64, series: int = 1) -> Stretches | None:
    """All stretches of steps that are over a threshold and too long for chance; None: there is none.

    The stretches are the maximal scoring subsequences of Ruzzo and Tompa (1999): a step over the threshold scores the
    logarithm of how much likelier it is in a stretch than by chance, another one that of the opposite. Where the median
    is just at the threshold, a step is over it with a probability of 1/2, so k of m steps in a row have a binomial
    probability; times the steps at which they may begin and the series, it must be below `CHANCE`. Of 59 steps and
    2 ranks 14 in a row are.

    Args:
        excess: by how much each step is over the threshold, below 0: it is not; NaN: not known, and not over it.
        series: how many series (ranks) are looked at in this way.
    """
    over = np.nan_to_num(excess, nan=-1.0) > 0
    tries = len(over) * series
    found = (Span(begin, end, len(over) - end <= TWICE) for begin, end in _maximal(over))
    return joined(
        _trimmed(span, excess)
        for span in found
        if tries * at_least(int(np.count_nonzero(over[span.rows])), len(span), 0.5) < CHANCE
    )


def _trimmed(span: Span, excess: Float64) -> Span:
    """The stretch without steps at its ends that are over the threshold by less than half of what is usual in it.

    Noise before and after a change reaches the threshold, too. A lasting one still lasts to the run's end.
    """
    much = excess[span.rows] >= 0.5 * median(excess[span.rows])
    end = span.end if span.lasting else span.begin + int(np.flatnonzero(much)[-1]) + 1
    return Span(span.begin + int(much.argmax()), end, span.lasting)


def joined(spans: Iterable[Span]) -> Stretches | None:
    """These stretches; None: there is none."""
    found = tuple(spans)
    return Stretches(found) if found else None


def by_window(values: Float64) -> Float64:
    """The median of each window, once per row; the rows after the last whole window take its value."""
    count = len(values) // WINDOW
    if not count:
        return np.full(len(values), np.nan)
    middle = np.nanmedian(_known(values[: count * WINDOW].reshape(count, WINDOW)), axis=1)
    return np.asarray(middle[np.minimum(np.arange(len(values)) // WINDOW, count - 1)])


def _maximal(over: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The maximal scoring subsequences, as begin and end; in linear time."""
    above, below = log(NEARLY_ALL / 0.5), log((1.0 - NEARLY_ALL) / 0.5)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], over.astype(np.int8), [0]])))
    # Of each: begin, end, the score before and after it, and the place of the last one that begins at a lower score.
    found: list[tuple[int, int, float, float, int]] = []
    score, done = 0.0, 0
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        score += below * (begin - done)
        left, right = score, score + above * (end - begin)
        score, done, first = right, end, begin
        while True:
            lower = _lower(found, left)
            if lower < 0 or found[lower][3] >= right:
                break
            first, left = found[lower][0], found[lower][2]
            del found[lower:]
        found.append((first, end, left, right, lower))
    return [(begin, end) for begin, end, *_ in found]


def _lower(found: list[tuple[int, int, float, float, int]], score: float) -> int:
    """The place of the last one that begins at a lower score; -1: there is none."""
    place = len(found) - 1
    while place >= 0 and found[place][2] >= score:
        # Those between begin at no lower score than this one.
        place = found[place][4]
    return place


def _known(rows: Float64) -> Float64:
    """Windows of which nothing is known count as endless: numpy warns of them otherwise."""
    unknown: npt.NDArray[np.bool_] = np.all(np.isnan(rows), axis=1)
    return np.where(unknown[:, None], np.inf, rows)
