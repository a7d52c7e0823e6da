"""How much of the cores' time other programs took while a run was made."""

from __future__ import annotations

import time
from typing import Final

import psutil

IDLE: Final = ("idle", "iowait", "guest", "guest_nice")
"""What no program takes, or what is counted twice: a guest's time is in that of its host's programs, too."""


class Beside:
    """Counts from its creation on. All processes of this one's tree are the run's own, and nobody else's are."""

    def __init__(self) -> None:
        self._busy, self._own, self._at = _busy_s(), _own_s(), time.monotonic()

    def share(self) -> float:
        """Of the time of all cores, what others took since then; with it what a hypervisor gave to other machines."""
        cores = (time.monotonic() - self._at) * (psutil.cpu_count() or 1)
        others = (_busy_s() - self._busy) - (_own_s() - self._own)
        return min(1.0, max(0.0, others / cores))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name) for name in times._fields if name not in IDLE))


def _own_s() -> float:
    """Processor time of this process and of all that it has started, ended ones too (not on Windows)."""
    total = 0.0
    mine = psutil.Process()
    for process in (mine, *mine.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # it has just ended, and is counted with its parent from now on
            continue
    return total
