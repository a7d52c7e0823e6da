"""The limit that a control group, such as a container, puts on this process's time on the processor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyddpdiag.record.control_groups import OWN, ROOT, counters, folders, text_of


class CpuQuota:
    """The tightest limit of this process, found once; `now` returns how often it has held the process back since then.

    Args:
        root: where the control groups are.
        own: names those of the process.
    """

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        found = [(cores, folder) for folder in folders("cpu", root, own) if (cores := _cores(folder))]
        self._milli_cores, self._folder = min(found, default=(0, root))
        self._begin = _counts(self._folder) if found else {}

    def now(self) -> dict[str, int]:
        """As `quota` in the sidecar; empty: there is no limit."""
        if not self._milli_cores:
            return {}
        counts = _counts(self._folder)
        grown = {name: max(0, value - self._begin.get(name, 0)) for name, value in counts.items()}
        return {"milli_cores": self._milli_cores, **grown}


def _cores(folder: Path) -> int:
    """The limit of one control group in thousandths of a core; 0: none."""
    unified = text_of(folder / "cpu.max").split()
    if len(unified) == 2:
        quota, period = unified
    else:
        quota, period = text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us")
    # Without a limit it is "max", or -1.
    if not (quota.isdecimal() and period.isdecimal()) or not int(quota) or not int(period):
        return 0
    return max(1, 1000 * int(quota) // int(period))


def _counts(folder: Path) -> Mapping[str, int]:
    found = counters(folder / "cpu.stat")
    # Version 1 counts nanoseconds.
    throttled_us = found.get("throttled_usec", found.get("throttled_time", 0) // 1000)
    return {
        "periods": found.get("nr_periods", 0),
        "throttled_periods": found.get("nr_throttled", 0),
        "throttled_us": throttled_us,
    }
