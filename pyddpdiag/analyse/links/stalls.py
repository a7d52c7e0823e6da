"""Links that carry nothing for a while, again and again, although something is to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.links.connections import Connection, Course
from pyddpdiag.model import LinkStats
from pyddpdiag.trace.rows import Bool

BUSY_SHARE: Final = 0.5
"""Between two readings of a stall something is to be sent for at least this part of the time."""

SLOWED: Final = 0.15
"""In a stall a link carries less than this part of what it usually does while it is busy."""

PARTLY: Final = 0.6
"""A stall that begins between two readings and ends between the next two leaves less than this part to each of them."""

LEAST_BYTES: Final = 1_000_000
"""A connection that carries less has no usual rate."""

LEAST_TIMES: Final = 2
"""One stall is an incident."""

SURE_TIMES: Final = 3
"""Where a link stalls so often, two moments of another one are no proof of their own."""

LEAST_GAPS: Final = 2
"""One gap between two stalls is no rhythm."""

AT_STALLS: Final = 0.7
"""Of what is sent again: a line that loses does so all the time, one that is down does so then."""

EQUAL_SHARE: Final = 0.7
NEARLY: Final = 0.3
"""So many of the gaps between stalls differ from their median by at most this part of it, or by two readings."""

READING_S: Final = 0.5
UNSEEN_S: Final = 2.0
"""Between readings that are further apart a stall may hide: they tell neither of one nor of the contrary."""


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
        if len(gaps) < LEAST_GAPS:
            return None
        middle = float(np.median(gaps))
        near = np.abs(gaps - middle) <= max(NEARLY * middle, 2 * READING_S)
        return middle if np.mean(near) >= EQUAL_SHARE else None


def stalls(links: Iterable[LinkStats], connections: Iterable[Connection]) -> Stalls | None:
    """The links that stall at least twice; None: there is none, or the system does not tell.

    A stall is known by what is to be sent (busy), confirmed (nearly nothing) and sent again when a timer has run out. A
    receiver that does not read is none of these: its system confirms what has come, and then nothing is sent again.

    Args:
        links: those that carry the gradients.
        connections: of all ranks.
    """
    courses = {
        (each.rank, each.local.rpartition(":")[0], each.peer.rpartition(":")[0], place): each.course
        for place, each in enumerate(connections)
        if each.course is not None
    }
    begin_of: dict[int, int] = {}
    for (rank, *_), course in courses.items():
        begin_of[rank] = min(begin_of.get(rank, int(course.at_ns[0])), int(course.at_ns[0]))
    found: list[tuple[float, LinkStats, list[tuple[float, float]], int]] = []
    seconds = 0.0
    for link in links:
        mine = [course for key, course in courses.items() if key[:3] == (link.rank, link.local, link.remote)]
        for course in mine:
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
    enough = SURE_TIMES if most >= SURE_TIMES else LEAST_TIMES
    often = [span for _, _, spans, _ in found if len(spans) >= enough for span in spans]
    found = [each for each in found if all(_meets(span, often) for span in each[2])]
    if not found:
        return None
    found.sort(key=lambda each: -each[0])
    some = tuple(dict.fromkeys(link for _, link, _, _ in found))
    joined = tuple(_joined(span for _, _, spans, _ in found for span in spans))
    return Stalls(some, joined, seconds, begin_of[some[0].rank], found[0][3])


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
    asked = (busy >= BUSY_SHARE * took) & (took > 0)
    rows = (asked & (moved < SLOWED)) | _halves(asked & (moved < PARTLY), took / 1e6 * (1.0 - moved))
    around = rows.copy()
    around[1:] |= rows[:-1]
    around[:-1] |= rows[1:]
    at_stalls = int(again[around].sum())
    # Each stall by itself: its timer has sent something again.
    near = again > 0
    near[1:] |= again[:-1] > 0
    near[:-1] |= again[1:] > 0
    rows &= near
    if not rows.any() or at_stalls < AT_STALLS * again.sum():
        return None
    return rows, moved, at_stalls


def _halves(slow: Bool, missing_s: Float64) -> Bool:
    """Two neighbours that are slow, alone, and miss as much together as one that carries nothing."""
    alone = slow[:-1] & slow[1:] & (missing_s[:-1] + missing_s[1:] >= READING_S)
    alone[1:] &= ~slow[:-2]
    alone[:-1] &= ~slow[2:]
    rows = np.zeros(len(slow), np.bool_)
    rows[:-1] |= alone
    rows[1:] |= alone
    return rows


def _spans(at: Float64, rows: Bool, moved: Float64) -> Iterator[tuple[float, float]]:
    """The stalls: what is carried before one and after it, between the same readings, is no part of it."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rows, [False]]).astype(np.int8)))
    for first, behind in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
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


__all__ = ["Stalls", "stalls"]
