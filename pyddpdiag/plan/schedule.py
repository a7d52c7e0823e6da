"""DDP's buckets through Gloo's two workers, many steps at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64

WORKERS: Final = 2
"""Gloo's threads per process group: so many operations are on their way at once."""


def replay(ready: Float64, work: Float64) -> Float64:
    """When the last bucket of each step ends; [steps] in ms.

    Buckets start in their order, each when it is ready and a worker is free. Those on their way share the link.

    Args:
        ready: when all ranks have handed each bucket over: [steps, buckets].
        work: what each takes when it has the link to itself; the same shape.
    """
    steps, buckets = ready.shape
    lanes = np.arange(steps)
    now, begun = np.zeros(steps), np.zeros(steps, np.int64)
    left = np.full((steps, WORKERS), np.inf)
    # Each bucket begins once and ends once: one of these events of every step per turn.
    for _ in range(2 * buckets):
        place = np.minimum(begun, buckets - 1)
        is_busy = np.isfinite(left)
        busy = is_busy.sum(axis=1)
        can_begin = (begun < buckets) & (busy < WORKERS)
        begin = np.where(can_begin, np.maximum(now, ready[lanes, place]), np.inf)
        end = now + left.min(axis=1) * np.maximum(busy, 1)
        begins = begin < end
        then = np.where(begins, begin, end)
        left -= ((then - now) / np.maximum(busy, 1))[:, None]
        # The one that is free, or the one that ends.
        worker = np.where(begins, np.argmin(is_busy, axis=1), np.argmin(left, axis=1))
        left[lanes, worker] = np.where(begins, work[lanes, place], np.inf)
        begun += begins
        now = then
    return now


def work_alone(started: Float64, ended: Float64) -> Float64:
    """What each bucket would have taken with the link to itself: [steps, buckets] in ms.

    The reverse of `replay`: while several are on their way, each gets an equal part of the time.
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
