"""How much of the machine other programs used during a launch."""

from __future__ import annotations

import time

import psutil


class Others:
    """Watches from its creation on."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._own = time.process_time()
        self._idle = _idle_s()

    def own_s(self) -> float:
        """Processor time of this process."""
        return time.process_time() - self._own

    def share(self, ranks_s: float) -> float:
        """The share of all processors that was neither idle nor used by the ranks, 0 to 1.

        Args:
            ranks_s: processor time of all ranks, in seconds; all run on this machine.
        """
        whole = (time.perf_counter() - self._begin) * (psutil.cpu_count() or 1)
        others = whole - (_idle_s() - self._idle) - ranks_s
        return min(1.0, max(0.0, others / whole))


def _idle_s() -> float:
    times = psutil.cpu_times()
    return float(times.idle + getattr(times, "iowait", 0.0))
