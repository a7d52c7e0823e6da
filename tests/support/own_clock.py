"""The clock of this machine as a recorder here names it, for traces that a reader takes for its own."""

import time

from pyddpdiag.system.clock import clock_identity

IDENTITY = clock_identity().encode()
NAME = next(
    name
    for name in (b"CLOCK_MONOTONIC", b"QueryPerformanceCounter")
    if name.decode() in time.get_clock_info("perf_counter").implementation
)
