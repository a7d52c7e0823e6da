"""What a bucket takes in a ring of any number of ranks, beside ranks that compute, and on another path than Gloo's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from pyddpdiag.analyse.bounds import ALL_LATENCY_BYTES, BYTES_SHARE, LATENCY_SHARE, LONG, SLOW_START
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.wire_fit import fit_times


@dataclass(frozen=True)
class Ring:
    """A ring's link: `round_ms` for one of an all-reduce's 2 (n - 1) rounds, `ms_per_byte` for each byte sent."""

    round_ms: float
    ms_per_byte: float

    def work_ms(self, sizes: Float64, ranks: int) -> Float64:
        """What buckets of these bytes take over so many ranks, each with the link to itself."""
        latency, rest = self.parts_ms(sizes, ranks)
        return latency + rest

    def parts_ms(self, sizes: Float64, ranks: int) -> tuple[Float64, Float64]:
        """The same in two parts: the rounds, and the bytes."""
        rounds = 2 * (ranks - 1)
        return np.full(len(sizes), rounds * self.round_ms), rounds / ranks * sizes * self.ms_per_byte


def fit_ring(sizes: Float64, work: Float64, ranks: int, most_round_ms: float = np.inf) -> Ring | None:
    """The ring over `ranks` in which buckets of these sizes took so long; None if it cannot be told from them.

    Its rounds are no longer than `most_round_ms`; the rest of what all buckets took is that of their bytes.
    """
    if ranks < 2 or not len(sizes) or sizes.min() <= 0 or work.min() <= 0 or sizes.max() < LONG * sizes.min():
        return None
    rounds = 2 * (ranks - 1)
    fit = fit_times(sizes, work, rounds * most_round_ms)
    return Ring(fit.latency_ms / rounds, fit.ms_per_byte * ranks / rounds)


_LEAST_LOST: Final = 0.1
"""Of the time with buckets on their way, a rank that waits less for a core shares none."""

_LEAST_PACE: Final = 0.2
_PACES: Final = np.arange(1.0, _LEAST_PACE - 0.005, -0.02)


@dataclass(frozen=True)
class Sharing:
    """How fast each goes on while ranks compute and buckets are on their way, of what it is alone.

    `wire` is that of the buckets, `compute` that of the ranks.
    """

    wire: float = 1.0
    compute: float = 1.0


@dataclass(frozen=True)
class Contention:
    """What tells of sharing in a recorded run, in ms.

    Attributes:
        core_wait: of a step, for which a rank that was ready to compute waited for a core; NaN: not known.
        both: of a step, with a rank computing and buckets on their way.
        most_round: what a round of the ring can take at most, by the connections' own round trips; None: not known.
    """

    core_wait: float
    both: float
    most_round: float | None


def busy_before(started: Float64, ended: Float64, until: Float64) -> Float64:
    """For how long something was on its way before `until`: [steps, times].

    `started`, `ended`: of each bucket: [steps, buckets]. `until`: [steps, times].
    """
    order = np.argsort(started, axis=1)
    begin, end = (np.take_along_axis(each, order, axis=1) for each in (started, ended))
    # Each counts from where those before it have ended.
    before = np.maximum.accumulate(end, axis=1)[:, :-1]
    begin = np.concatenate([begin[:, :1], np.maximum(begin[:, 1:], before)], axis=1)
    end = np.maximum(begin, end)
    found = np.zeros(until.shape)
    for place in range(begin.shape[1]):
        found += np.clip(until - begin[:, place, None], 0.0, (end - begin)[:, place, None])
    return found


def fit(
    sizes: Float64, during: Float64, after: Float64, ranks: int, contention: Contention
) -> tuple[Ring | None, Sharing]:
    """The ring over `ranks`, and what backward and buckets take from each other.

    A small bucket that takes long says that the ring's rounds are long, or that the ranks, which compute meanwhile,
    left it no core. Where they waited for a core themselves, rounds are no longer than the connections' round trips
    allow; the rest is sharing. A core's time is either's: together they do not go slower than one of them alone.

    Args:
        sizes: of the buckets, in bytes.
        during, after: what each took with the link to itself while ranks computed, and after that: [buckets] in ms.
        ranks: of the recorded run.
        contention: what else the run tells.
    """
    work = during + after
    most = np.inf if contention.most_round is None else contention.most_round
    lost = contention.core_wait / contention.both if contention.both > 0 else np.nan
    ring = fit_ring(sizes, work, ranks, SLOW_START * most)
    if ring is None or not lost >= _LEAST_LOST:
        return ring, Sharing()
    compute = max(1.0 - lost, _LEAST_PACE)
    if contention.most_round is None:
        return ring, Sharing(1.0, compute)
    for pace in _PACES.tolist():
        found = fit_ring(sizes, pace * during + after, ranks)
        if found is not None and found.round_ms <= most:
            return found, Sharing(pace, max(compute, 1.0 - pace))
    # Buckets that were on their way together did not get equal parts of the link.
    return fit_ring(sizes, work, ranks, most), Sharing(1.0, compute)


Path = Literal["gloo", "bf16", "fp16", "shared memory"]

HALVED: Final = 0.5
"""Of what a bucket takes beyond its latency, what 16 bits save: half of the bytes. What the report promises is less
(`analyse.wire_fit`), so that it is kept."""


def on_path(path: Path, sizes: Float64, latency: Float64, rest: Float64) -> Float64:
    """What each bucket takes, in ms.

    Shared memory leaves the shares with which the report predicts it; docs/cures.md says how far off these are.

    Args:
        sizes: of the buckets, in bytes.
        latency: what each takes over Gloo, however small it is, in ms.
        rest: what it takes beyond that.
    """
    if path == "gloo":
        return latency + rest
    if path == "shared memory":
        return LATENCY_SHARE * latency + BYTES_SHARE * rest
    # Small ones take as long as before.
    return latency + rest * np.where(sizes > ALL_LATENCY_BYTES, 1.0 - HALVED, 1.0)


WORKERS: Final = 2
"""Gloo's threads per process group: so many operations are on their way at once."""

_SAME: Final = 1e-9


def replay(ready: Float64, work: Float64, sharing: Sharing = Sharing()) -> tuple[Float64, Float64]:
    """When the last bucket of each step is handed over, and when the last one ends; [steps] each, in ms.

    Buckets start in their order, each when it is ready and a worker is free. Those on their way share the link. While
    ranks compute and buckets are on their way, both are slower.

    Args:
        ready: when all ranks have computed each bucket, were they to compute alone: [steps, buckets].
        work: what each takes when it has the link and the processor to itself; the same shape.
        sharing: how much slower both are.
    """
    steps, buckets = ready.shape
    lanes = np.arange(steps)
    last = ready[:, -1]
    now, done, handed = np.zeros(steps), np.zeros(steps), np.zeros(steps)
    begun = np.zeros(steps, np.int64)
    left = np.full((steps, WORKERS), np.inf)
    # Each bucket begins once and ends once, and computing ends once: one of these events of every step per turn.
    for _ in range(2 * buckets + 1):
        place = np.minimum(begun, buckets - 1)
        is_busy = np.isfinite(left)
        busy = is_busy.sum(axis=1)
        computing = done < last
        compute_pace = np.where(busy > 0, sharing.compute, 1.0)
        wire_pace = np.where(computing, sharing.wire, 1.0) / np.maximum(busy, 1)
        can_begin = (begun < buckets) & (busy < WORKERS)
        begin = np.where(can_begin, np.maximum(ready[lanes, place] - done, 0.0) / compute_pace, np.inf)
        end = left.min(axis=1) / wire_pace
        stop = np.where(computing, (last - done) / compute_pace, np.inf)
        ahead = np.minimum(np.minimum(begin, end), stop)
        is_on = np.isfinite(ahead)
        ahead = np.where(is_on, ahead, 0.0)
        begins = is_on & (begin < end) & (begin <= stop)
        ends = is_on & ~begins & (end <= stop)
        now += ahead
        done += ahead * compute_pace
        left -= (ahead * wire_pace)[:, None]
        arrived = computing & (done >= last - _SAME)
        done[arrived], handed[arrived] = last[arrived], now[arrived]
        # The one that is free, or the one that ends.
        worker = np.where(begins, np.argmin(is_busy, axis=1), np.argmin(left, axis=1))
        changes = begins | ends
        left[lanes[changes], worker[changes]] = np.where(begins, work[lanes, place], np.inf)[changes]
        begun += begins
    return handed, now


def work_alone(started: Float64, ended: Float64) -> Float64:
    """What each bucket would have taken with the link to itself: [steps, buckets] in ms.

    While several are on their way, each gets an equal part of the time.
    """
    edges = np.sort(np.concatenate([started, ended], axis=1), axis=1)
    left, right = edges[:, :-1], edges[:, 1:]
    active = np.zeros(left.shape)
    for bucket in range(started.shape[1]):
        active += (started[:, bucket, None] <= left) & (ended[:, bucket, None] >= right)
    share = (right - left) / np.maximum(active, 1)
    return np.stack(
        [
            np.where((started[:, bucket, None] <= left) & (ended[:, bucket, None] >= right), share, 0.0).sum(
                axis=1
            )
            for bucket in range(started.shape[1])
        ],
        axis=1,
    )
