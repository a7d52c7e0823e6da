"""DDP's buckets through Gloo's two workers, many steps at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.plan.ring import Sharing

WORKERS: Final = 2
"""Gloo's threads per process group: so many operations are on their way at once."""

_SAME: Final = 1e-9


def replay(ready: Float64, work: Float64, sharing: Sharing = Sharing()) -> tuple[Float64, Float64]:  # noqa: B008
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
