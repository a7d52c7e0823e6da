"""What averaging in shared memory would save where ranks of one machine go through its loopback interface.

A model, fitted to the run: a bucket over Gloo takes a latency and a time per byte, here and now, on this machine under
this load. In shared memory each part takes a fixed share of that. docs/cures.md says how far off it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.analyse.bounds import BYTES_SHARE, LATENCY_SHARE, SMALL_BYTES
from pyddpdiag.analyse.wire_fit import WireFit, fit_wire, lasting_buckets
from pyddpdiag.model import BucketStats


def shared_gain_ms(exposed_ms: float, buckets: Sequence[BucketStats]) -> float | None:
    """What of the exposed communication would be gone in each step, in ms.

    What was hidden behind the backward pass stays hidden; that it frees the processor is not counted. None: it cannot
    be told, or buckets are in shared memory already.

    Args:
        exposed_ms: what is exposed per step.
        buckets: those of one part of the run.
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
