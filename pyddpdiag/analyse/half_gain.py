"""What gradients in 16 bits would save: a model of the run, as `predicted` beside a trial of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyddpdiag.analyse.bounds import ALL_LATENCY_BYTES, HALVED
from pyddpdiag.analyse.round_trips import most_latency_ms
from pyddpdiag.analyse.wire_fit import fit_wire
from pyddpdiag.model import BucketStats, LinkStats

HALF: Final = ("float16", "bfloat16")


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
        exposed_ms: per step.
        buckets: of the lasting layout.
        links: of the run; none: not known.
    """
    if not can_halve(buckets):
        return None
    large = filter(_is_large, buckets)
    fit = fit_wire(buckets, most_latency_ms=most_latency_ms(links))
    latency = fit.latency_ms if fit is not None and not fit.assumed else 0.0
    wire = sum(max(0.0, (bucket.times.wire_ms.median or 0.0) - latency) for bucket in large)
    return min(exposed_ms, HALVED * wire)


__all__ = ["HALF", "HALVED", "can_halve", "half_gain_ms"]
