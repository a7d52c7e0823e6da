"""Wire time as latency plus bytes over bandwidth, fitted to a run's own buckets; and what 16 bits, or averaging in the
memory that ranks of one machine share, would save of it (docs/cures.md says how far off that is)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import (
    ALL_LATENCY_BYTES,
    ASSUMED_MS_PER_BYTE,
    BYTES_SHARE,
    CROWDED_MS,
    HALVED,
    LATENCY_SHARE,
    LEAST_STEPS,
    LONG,
    ROUND_MS,
    SLOW_START,
    SMALL_BYTES,
    SMALL_COUNT,
)
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.rows import BucketStats

HALF: Final = ("float16", "bfloat16")


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


def most_round_ms(links: Sequence[LinkStats]) -> float | None:
    """The longest of the connections' shortest round trips, and `ROUND_MS`; None where no trip is known."""
    trips = [link.floor_rtt_ms for link in links if link.floor_rtt_ms is not None]
    return max(trips) + ROUND_MS if trips else None


def most_latency_ms(links: Sequence[LinkStats]) -> float | None:
    """What an all-reduce over all ranks of these links takes at most besides its bytes; None: not known."""
    most, ranks = most_round_ms(links), len({link.rank for link in links})
    return None if most is None or ranks < 2 else 2 * (ranks - 1) * SLOW_START * most


def can_halve(buckets: Sequence[BucketStats]) -> bool:
    """Whether some take longer because of their bytes, and none is in 16 bits already."""
    return any(map(_is_large, buckets)) and not any(bucket.dtype in HALF for bucket in buckets)


def _is_large(bucket: BucketStats) -> bool:
    return bucket.bytes > ALL_LATENCY_BYTES and not bucket.shared_memory


def half_gain_ms(
    exposed_ms: float, buckets: Sequence[BucketStats], links: Sequence[LinkStats]
) -> float | None:
    """What 16 bits would take from what is exposed per step, in ms; None where gradients have them, or cannot.

    Small buckets and the latency of large ones stay as they are. What is hidden behind backward counts: the queue of
    buckets gets shorter as a whole.

    Args:
        links: of the run; none: not known.
    """
    if not can_halve(buckets):
        return None
    large = filter(_is_large, buckets)
    fit = fit_wire(buckets, most_latency_ms=most_latency_ms(links))
    latency = fit.latency_ms if fit is not None and not fit.assumed else 0.0
    wire = sum(max(0.0, (bucket.times.wire_ms.median or 0.0) - latency) for bucket in large)
    return min(exposed_ms, HALVED * wire)


def shared_gain_ms(exposed_ms: float, buckets: Sequence[BucketStats]) -> float | None:
    """What of the exposed communication would be gone in each step, in ms.

    What was hidden behind the backward pass stays hidden; that it frees the processor is not counted. None: it cannot
    be told, or buckets are in shared memory already.
    """
    lasting = lasting_buckets(buckets)
    points = [(bucket.bytes, bucket.times.wire_ms.median) for bucket in lasting]
    known = [(amount, wire) for amount, wire in points if wire]
    if not known or any(bucket.shared_memory for bucket in lasting):
        return None
    fit = fit_wire(lasting)
    saved = [wire - _in_shared_memory(amount, wire, fit) for amount, wire in known]
    # The last bucket begins when nothing is left to hide it behind.
    least = min(_in_shared_memory(amount, wire, fit) for amount, wire in known)
    return max(0.0, min(sum(saved), exposed_ms - least))


def _in_shared_memory(amount: int, wire_ms: float, fit: WireFit | None) -> float:
    """What a bucket would take, that takes `wire_ms` over Gloo."""
    # For buckets of one size, only that separates latency from bytes.
    unfitted = wire_ms if amount <= SMALL_BYTES else 0.0
    latency = unfitted if fit is None else min(wire_ms, fit.latency_ms)
    return LATENCY_SHARE * latency + BYTES_SHARE * (wire_ms - latency)
