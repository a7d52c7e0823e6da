"""The ranges of a recorder's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyddpdiag.errors import UsageError
from pyddpdiag.record.sentinel import require_mode
from pyddpdiag.record.watchdog import require_seconds

MOST_PASSES: Final = 2**32 - 1
"""An interval has 32 bits in the trace's header."""


def require(
    capacity_mb: float,
    intervals: Mapping[str, int],
    sentinel: str,
    sentinel_interval: int,
    watchdog_s: float | None,
) -> None:
    """Refuses what no recorder can work with; the arguments are those of `Recorder`, `intervals` by their names.

    Raises:
        UsageError: one is out of its range.
    """
    if not 0.0625 <= capacity_mb <= 65536:
        raise UsageError(f"capacity_mb must be between 0.0625 and 65536, not {capacity_mb}.")
    for name, interval in intervals.items():
        if not 0 <= interval <= MOST_PASSES:
            raise UsageError(f"{name} must be from 0 (never) to {MOST_PASSES}, not {interval}.")
    require_mode(sentinel)
    if not 1 <= sentinel_interval <= MOST_PASSES:
        raise UsageError(f"sentinel_interval must be from 1 to {MOST_PASSES}, not {sentinel_interval}.")
    require_seconds(watchdog_s)
