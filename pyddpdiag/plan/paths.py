"""What a bucket takes on another path than Gloo's all-reduce, from what it takes there."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from pyddpdiag.analyse.bounds import ALL_LATENCY_BYTES, BYTES_SHARE, LATENCY_SHARE
from pyddpdiag.analyse.grouped import Float64

Path = Literal["gloo", "bf16", "fp16", "shared memory"]

HALVED: Final = 0.5
"""Of what a bucket takes beyond its latency, what 16 bits save: half of the bytes. What the report promises is less
(`analyse.wire_fit`), so that it is kept."""


def on_path(path: Path, sizes: Float64, latency: Float64, rest: Float64) -> Float64:
    """What each bucket takes, in ms.

    Shared memory leaves the shares with which the report predicts it; docs/cures.md says how far off these are.

    Args:
        path: that all buckets take.
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
