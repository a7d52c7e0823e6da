"""The median and 95th percentile of something, with None where nothing was seen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True)
class Stat:
    """Median and 95th percentile, linearly interpolated. None: no value is known."""

    median: float | None = None
    p95: float | None = None


@dataclass(frozen=True)
class BucketTimes:
    """How one bucket's all-reduce spent its time. Milliseconds, GB/s (10^9 bytes/s) and a fraction."""

    arrival_ms: Stat = Stat()
    queue_ms: Stat = Stat()
    wire_ms: Stat = Stat()
    total_ms: Stat = Stat()
    algbw_gbps: Stat = Stat()
    busbw_gbps: Stat = Stat()
    hidden_fraction: Stat = Stat()


METRICS: Final = tuple(field.name for field in fields(BucketTimes))
"""What is measured of every bucket, by name."""
