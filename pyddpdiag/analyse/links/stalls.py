"""Links that carry nothing for a while, again and again, although something is to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_BYTES, MOST, NEARLY_ALL, PARTLY, READING_S, TWICE
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.links.connections import LEAST_READINGS, Connection
from pyddpdiag.analyse.step_matrix import StepMatrix, median, step_walls
from pyddpdiag.analyse.steps import StepEnds
from pyddpdiag.model.links import LinkStats
from pyddpdiag.trace.layout import ConnectionValue
from pyddpdiag.trace.rows import Bool

_V = ConnectionValue


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
    """
    by_ends: dict[tuple[int, str, str], list[Connection]] = {}
    begin_of: dict[int, int] = {}
    for each in connections:
        has = (each.readings[:, [_V.BUSY_US, _V.BYTES_ACKED]] >= 0).all(axis=1)
        if np.count_nonzero(has) >= LEAST_READINGS:
            known = replace(each, readings=each.readings[has])
            ends = each.rank, each.local.rpartition(":")[0], each.peer.rpartition(":")[0]
            by_ends.setdefault(ends, []).append(known)
            first = int(known.readings[0, _V.AT])
            begin_of[each.rank] = min(first, begin_of.get(each.rank, first))
    found: list[tuple[LinkStats, list[tuple[float, float]], int]] = []
    seconds = 0.0
    for link in links:
        for connection in by_ends.get((link.rank, link.local, link.remote), ()):
            # Ranks open their recorders at about the same time, whatever their clocks say.
            at = (connection.readings[:, _V.AT] - begin_of[link.rank]) / 1e9
            seconds = max(seconds, float(at[-1]))
            stalled = _stalled(connection)
            if stalled is not None:
                rows, moved, again = stalled
                found.append((link, list(_spans(at, rows, moved)), again))
    # What stalls less often counts where it does so together with what stalls often enough.
    enough = max(TWICE, max((len(spans) for _, spans, _ in found), default=0) / 2)
    often = [span for _, spans, _ in found if len(spans) >= enough for span in spans]
    found = [each for each in found if all(_meets(span, often) for span in each[1])]
    if not found:
        return None
    found.sort(key=lambda each: -sum(end - begin for begin, end in each[1]))
    some = tuple(dict.fromkeys(link for link, *_ in found))
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(span for _, spans, _ in found for span in spans):
        # Those that touch or overlap are one.
        since, until = joined.pop() if joined and begin <= joined[-1][1] + 1e-3 else (begin, end)
        joined.append((since, max(until, end)))
    return Stalls(some, tuple(joined), seconds, begin_of[some[0].rank], found[0][2])


def lost_in(stalls: Stalls, steps: StepMatrix, ends: StepEnds) -> float:
    """Seconds. The readings alone tell less: what is sent again comes late, as its timer doubles each time.

    Args:
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


def _stalled(connection: Connection) -> tuple[Bool, Float64, int] | None:
    """Between which readings it stalls, which part of the usual it carries between any two of them, and how many
    segments were sent again in the stalls; None: it never stalls, or that is not known."""
    at, busy, size = (np.diff(connection.readings[:, each]) for each in (_V.AT, _V.BUSY_US, _V.BYTES_ACKED))
    lost, took = connection.column(_V.SEGMENTS_AND_RETRANSMITTED, high=True), at / 1e3
    again = np.diff(lost)
    if (lost < 0).any() or size.sum() < LEAST_BYTES:
        return None
    # Between readings that are further apart a stall may hide: they tell neither of one nor of the contrary.
    again = np.where((again > 0) & (took < 4e6 * READING_S), again, 0)
    moving = (busy > 0) & (size > 0)
    rate = np.where(busy > 0, size / np.maximum(1, busy), 0.0)
    # By bytes: half of them went faster than this. Stalls and trickles carry hardly any.
    order = np.argsort(rate[moving])
    shares = np.cumsum(size[moving][order])
    usual = float(rate[moving][order][np.searchsorted(shares, shares[-1] / 2)])
    moved = np.minimum(rate / usual, 1.0)
    # For so long something was to be sent, and did not move at the usual rate; by the time from reading to reading.
    missing = np.where(took > 0, busy * (1.0 - moved) / np.maximum(1, took), 0.0)
    rows = missing >= PARTLY
    for first, behind in _runs(rows):
        rows[first:behind] = missing[first:behind].sum() >= max(NEARLY_ALL, behind - first - 1)
    at_stalls = int(again[_around(rows)].sum())
    # Each stall by itself: its timer has sent something again.
    rows &= _around(again > 0)
    # A line that loses does so all the time, one that is down does so then.
    if not rows.any() or at_stalls < MOST * again.sum():
        return None
    return rows, moved, at_stalls


def _around(rows: Bool) -> Bool:
    """Those that are set, and their neighbours."""
    return np.convolve(rows, np.ones(3), "same") > 0


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
