"""Links that carry nothing for a while, again and again, although something is to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pyddpdiag.analyse.bounds import MOST, TWICE
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.links.connections import Connection, Course, courses_of
from pyddpdiag.analyse.links.noise import LEAST_BYTES, PARTLY, READING_S, UNSEEN_S, WHOLE
from pyddpdiag.analyse.step_matrix import StepMatrix, median, step_walls
from pyddpdiag.analyse.steps import StepEnds
from pyddpdiag.model import LinkStats
from pyddpdiag.trace.rows import Bool


@dataclass(frozen=True)
class Stalls:
    """The stalls of some links.

    Attributes:
        links: that stall, the one with the longest stalls first.
        spans: from when to when something stalls, in s since the first reading, in order.
        seconds: for how long the links were read.
        begin_ns: the first reading, on the clock of the first link's rank.
        sent_again: segments in and around the stalls.
    """

    links: tuple[LinkStats, ...]
    spans: tuple[tuple[float, float], ...]
    seconds: float
    begin_ns: int
    sent_again: int

    @property
    def stalled_s(self) -> float:
        """How long they take in all."""
        return sum(end - begin for begin, end in self.spans)

    @property
    def longest_s(self) -> float:
        """The longest of them."""
        return max(end - begin for begin, end in self.spans)

    @property
    def every_s(self) -> float | None:
        """The time from one to the next where that is always about the same; None: it is not."""
        gaps = np.array([later[0] - earlier[0] for earlier, later in pairwise(self.spans)])
        if len(gaps) < TWICE:
            return None
        middle = float(np.median(gaps))
        # As nearly as readings can tell: most gaps, as a stall may be missed.
        return middle if np.median(np.abs(gaps - middle)) <= READING_S else None


def stalls(links: Iterable[LinkStats], connections: Iterable[Connection]) -> Stalls | None:
    """The links that stall at least twice; None: there is none, or the system does not tell.

    A stall is known by what is to be sent (busy), confirmed (nearly nothing) and sent again when a timer has run out. A
    receiver that does not read is none of these: its system confirms what has come, and then nothing is sent again.

    Args:
        links: those that carry the gradients.
        connections: of all ranks.
    """
    courses = courses_of(connections)
    begin_of: dict[int, int] = {}
    for (rank, *_), several in courses.items():
        begin_of[rank] = min([int(course.at_ns[0]) for course in several] + [begin_of.get(rank, 2**63)])
    found: list[tuple[float, LinkStats, list[tuple[float, float]], int]] = []
    seconds = 0.0
    for link in links:
        for course in courses.get((link.rank, link.local, link.remote), ()):
            # Ranks open their recorders at about the same time, whatever their clocks say.
            at = (course.at_ns - begin_of[link.rank]) / 1e9
            seconds = max(seconds, float(at[-1]))
            stalled = _stalled(course)
            if stalled is None:
                continue
            rows, moved, again = stalled
            spans = list(_spans(at, rows, moved))
            found.append((sum(end - begin for begin, end in spans), link, spans, again))
    # What stalls less often counts where it does so together with what stalls often enough.
    most = max((len(spans) for _, _, spans, _ in found), default=0)
    enough = max(TWICE, most / 2)
    often = [span for _, _, spans, _ in found if len(spans) >= enough for span in spans]
    found = [each for each in found if all(_meets(span, often) for span in each[2])]
    if not found:
        return None
    found.sort(key=lambda each: -each[0])
    some = tuple(dict.fromkeys(link for _, link, _, _ in found))
    joined = tuple(_joined(span for _, _, spans, _ in found for span in spans))
    return Stalls(some, joined, seconds, begin_of[some[0].rank], found[0][3])


def lost_in(stalls: Stalls, steps: StepMatrix, ends: StepEnds) -> float:
    """Seconds. The readings alone tell less: what is sent again comes late, as its timer doubles each time.

    Args:
        stalls: of the links.
        steps: the judged steps.
        ends: when the steps of the rank `stalls.links[0].rank` ended.
    """
    walls = step_walls(steps) / 1e3
    row_of = {step: row for row, step in enumerate(ends.step.tolist())}
    extra = np.maximum(np.nan_to_num(walls - median(walls)), 0.0)
    lost = 0.0
    for step, wall, more in zip(steps.step.tolist(), walls, extra, strict=True):
        at_ns = int(ends.at_ns[row_of[step]]) if step in row_of else 0
        end = (at_ns - stalls.begin_ns) / 1e9
        if at_ns and any(
            end >= since - READING_S and end - wall <= until + READING_S for since, until in stalls.spans
        ):
            lost += float(more)
    return max(lost, stalls.stalled_s)


def _stalled(course: Course) -> tuple[Bool, Float64, int] | None:
    """Between which readings it stalls, which part of the usual it carries between any two of them, and how many
    segments were sent again in the stalls; None: it never stalls, or that is not known."""
    took, busy = np.diff(course.at_ns) / 1e3, np.diff(course.busy_us).astype(np.float64)
    size, again = np.diff(course.bytes), np.diff(course.again)
    if (course.again < 0).any() or size.sum() < LEAST_BYTES:
        return None
    again = np.where((again > 0) & (took < 1e6 * UNSEEN_S), again, 0)
    moving = (busy > 0) & (size > 0)
    rate = np.divide(size, busy, out=np.zeros(len(busy)), where=busy > 0)
    # By bytes: half of them went faster than this. Stalls and trickles carry hardly any.
    order = np.argsort(rate[moving])
    shares = np.cumsum(size[moving][order])
    usual = float(rate[moving][order][np.searchsorted(shares, shares[-1] / 2)])
    moved = np.minimum(rate / usual, 1.0)
    # For so long something was to be sent, and did not move at the usual rate; by the time from reading to reading.
    missing = np.divide(busy * (1.0 - moved), took, out=np.zeros(len(busy)), where=took > 0)
    rows = missing >= PARTLY
    for first, behind in _runs(rows):
        rows[first:behind] = missing[first:behind].sum() >= max(WHOLE, behind - first - 1)
    around = rows.copy()
    around[1:] |= rows[:-1]
    around[:-1] |= rows[1:]
    at_stalls = int(again[around].sum())
    # Each stall by itself: its timer has sent something again.
    near = again > 0
    near[1:] |= again[:-1] > 0
    near[:-1] |= again[1:] > 0
    rows &= near
    # A line that loses does so all the time, one that is down does so then.
    if not rows.any() or at_stalls < MOST * again.sum():
        return None
    return rows, moved, at_stalls


def _runs(rows: Bool) -> list[tuple[int, int]]:
    """From where to before where they are set."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rows, [False]]).astype(np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _spans(at: Float64, rows: Bool, moved: Float64) -> Iterator[tuple[float, float]]:
    """The stalls: what is carried before one and after it, between the same readings, is no part of it."""
    for first, behind in _runs(rows):
        last = behind - 1
        begin = at[first] + moved[first] * (at[first + 1] - at[first])
        end = at[behind] - (moved[last] * (at[behind] - at[last]) if last > first else 0.0)
        yield float(begin), float(end)


def _meets(span: tuple[float, float], others: Iterable[tuple[float, float]]) -> bool:
    """Whether it is at the time of one of the others, by readings that are so far apart."""
    begin, end = span
    return any(begin <= until + 2 * READING_S and since <= end + 2 * READING_S for since, until in others)


def _joined(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Spans that touch or overlap as one."""
    last: tuple[float, float] | None = None
    for begin, end in sorted(spans):
        if last is not None and begin <= last[1] + 1e-3:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = begin, end
    if last is not None:
        yield last


__all__ = ["Stalls", "lost_in", "stalls"]
