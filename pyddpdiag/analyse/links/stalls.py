"""Links that carry nothing for a while, again and again, although something is to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from pyddpdiag.analyse.links.connections import Connection, Course
from pyddpdiag.model import LinkStats
from pyddpdiag.trace.rows import Bool

BUSY_SHARE: Final = 0.5
"""Between two readings of a stall something is to be sent for at least this part of the time."""

SLOWED: Final = 0.15
"""In a stall a link carries less than this part of what it usually does while it is busy."""

LEAST_BYTES: Final = 1_000_000
"""A connection that carries less has no usual rate."""

LEAST_TIMES: Final = 3
"""Fewer stalls are an incident."""

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
        sent_again: segments in and around the stalls.
    """

    links: tuple[LinkStats, ...]
    spans: tuple[tuple[float, float], ...]
    seconds: float
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
        if len(gaps) < LEAST_TIMES - 1:
            return None
        middle = float(np.median(gaps))
        near = np.abs(gaps - middle) <= max(NEARLY * middle, 2 * READING_S)
        return middle if np.mean(near) >= EQUAL_SHARE else None


def stalls(links: Iterable[LinkStats], connections: Iterable[Connection]) -> Stalls | None:
    """The links that stall at least three times; None: there is none, or the system does not tell.

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
            rows, again = stalled
            spans = list(_spans(at[:-1], at[1:], rows))
            if len(spans) >= LEAST_TIMES - 1:
                found.append((sum(end - begin for begin, end in spans), link, spans, again))
    # What stalls less often counts where it does so together with what stalls often enough.
    often = [span for _, _, spans, _ in found if len(spans) >= LEAST_TIMES for span in spans]
    found = [each for each in found if all(_meets(span, often) for span in each[2])]
    if not found:
        return None
    found.sort(key=lambda each: -each[0])
    some = tuple(dict.fromkeys(link for _, link, _, _ in found))
    return Stalls(
        some, tuple(_joined(span for _, _, spans, _ in found for span in spans)), seconds, found[0][3]
    )


def _stalled(course: Course) -> tuple[Bool, int] | None:
    """Between which readings it stalls, and how many segments were sent again there; None: never, or not known."""
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
    rows = (busy >= BUSY_SHARE * took) & (rate < SLOWED * usual) & (took > 0)
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
    return rows, at_stalls


def _spans(
    begin: np.ndarray[tuple[int], np.dtype[np.float64]],
    end: np.ndarray[tuple[int], np.dtype[np.float64]],
    rows: Bool,
) -> Iterator[tuple[float, float]]:
    yield from _joined(zip(begin[rows].tolist(), end[rows].tolist(), strict=True))


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
