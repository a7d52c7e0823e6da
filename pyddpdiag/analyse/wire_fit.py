"""Wire time as latency plus bytes over bandwidth, fitted to a run's own buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import (
    ASSUMED_MS_PER_BYTE,
    CROWDED_MS,
    LEAST_STEPS,
    LONG,
    SMALL_BYTES,
    SMALL_COUNT,
)
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model import BucketStats


@dataclass(frozen=True)
class WireFit:
    """What one all-reduce costs: `latency_ms`, and `ms_per_byte` for each byte.

    `assumed`: the time per byte was assumed, because the buckets are small and of one size.
    """

    latency_ms: float
    ms_per_byte: float
    assumed: bool = False

    def wire_ms(self, amount: float, buckets: int = 1) -> float:
        """What these bytes take in this number of buckets, one after the other."""
        return buckets * self.latency_ms + amount * self.ms_per_byte


def lasting_buckets(buckets: Sequence[BucketStats]) -> list[BucketStats]:
    """The buckets of the layout that stays: DDP makes it after the first step."""
    return [bucket for bucket in buckets if not bucket.first_steps_only]


def fit_wire(
    buckets: Sequence[BucketStats],
    most_ms_per_byte: float | None = None,
    most_latency_ms: float | None = None,
) -> WireFit | None:
    """The fit, by least squares of relative errors; None if the buckets cannot tell.

    Args:
        buckets: of one layout.
        most_ms_per_byte: what a bucket's byte takes at most, for buckets of one size; None: not known.
        most_latency_ms: what a bucket takes at most besides its bytes; None: not known. A small bucket that is on its
            way with a large one takes long, and is no sign of latency. Many may each wait for a core (`CROWDED_MS`).
    """
    known = [
        (float(bucket.bytes), bucket.times.wire_ms.median)
        for bucket in buckets
        if bucket.judged >= LEAST_STEPS and bucket.bytes > 0 and bucket.times.wire_ms.median
    ]
    if len(known) < 2:
        return None
    size, wire = np.array(known, np.float64).T
    if size.max() < LONG * size.min():
        if len(known) < SMALL_COUNT or size.max() > SMALL_BYTES:
            return None
        slope = ASSUMED_MS_PER_BYTE if most_ms_per_byte is None else most_ms_per_byte
        latency = float(np.median(wire - slope * size))
        return WireFit(latency, slope, assumed=most_ms_per_byte is None) if latency > 0 else None
    most = np.inf if most_latency_ms is None else most_latency_ms
    return fit_times(size, wire, max(most, CROWDED_MS) if len(known) >= SMALL_COUNT else most)


def fit_times(size: Float64, wire: Float64, most_latency_ms: float = np.inf) -> WireFit:
    """The fit to sizes in bytes and what they took in ms, all above 0; neither part of it is below 0.

    Where its latency would be above `most_latency_ms`, the rest of what all together took is that of their bytes.
    """
    fit = _least_squares(size, wire)
    if fit.latency_ms <= most_latency_ms:
        return fit
    left = max(0.0, float(wire.sum()) - len(wire) * most_latency_ms)
    return WireFit(most_latency_ms, left / float(size.sum()))


def _least_squares(size: Float64, wire: Float64) -> WireFit:
    columns = np.stack([1.0 / wire, size / wire], axis=1)
    (latency, slope), *_ = np.linalg.lstsq(columns, np.ones(len(wire)), rcond=None)
    if slope < 0:
        return WireFit(float(columns[:, 0].sum() / (columns[:, 0] ** 2).sum()), 0.0)
    if latency < 0:
        # Small buckets got more than their share of the link, or its queues took them at once: all together took what
        # they took.
        return WireFit(0.0, float(wire.sum() / size.sum()))
    return WireFit(float(latency), float(slope))
