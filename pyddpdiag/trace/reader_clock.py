"""Whether a trace uses the reader's own monotonic clock."""

from __future__ import annotations

import time
from typing import Final

import psutil

from pyddpdiag.system.clock import clock_identity, linux_identity, monotonic_ns
from pyddpdiag.trace.header import Header

_SECOND_NS: Final = 1_000_000_000


def is_own_clock(header: Header) -> bool:
    """Whether the times in a trace are from this machine's monotonic clock, since its last boot."""
    identity = clock_identity()
    return (
        identity != ""
        and header.clock_identity == identity
        and header.clock_name != ""
        and header.clock_name in time.get_clock_info("perf_counter").implementation
        # On Windows the identity names the machine and not the boot, and the counter restarts with each boot.
        and (linux_identity() != "" or header.wall_ns >= psutil.boot_time() * _SECOND_NS)
        and header.monotonic_ns <= monotonic_ns()
    )
