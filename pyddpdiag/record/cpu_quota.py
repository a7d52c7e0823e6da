"""The limit that a control group, such as a container, puts on this process's time on the processor.

Linux's, of version 1 and 2. Elsewhere the files do not exist, and there is no limit that could be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_LIMIT: Final = 65_536


class CpuQuota:
    """The tightest limit of this process, found once; `now` returns how often it has held the process back since then.

    Args:
        root: where the control groups are.
        own: names those of the process.
    """

    def __init__(self, root: Path = _ROOT, own: Path = _OWN) -> None:
        found = [(cores, folder) for folder in _folders(root, own) if (cores := _cores(folder))]
        self._milli_cores, self._folder = min(found, default=(0, root))
        self._begin = _counts(self._folder) if found else {}

    def now(self) -> dict[str, int]:
        """As `quota` in the sidecar; empty: there is no limit."""
        if not self._milli_cores:
            return {}
        counts = _counts(self._folder)
        grown = {name: max(0, value - self._begin.get(name, 0)) for name, value in counts.items()}
        return {"milli_cores": self._milli_cores, **grown}


def _folders(root: Path, own: Path) -> Iterator[Path]:
    """The control groups around the process, from its own outwards; a limit on an outer one counts as well."""
    for line in _text(own).splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            base = root
        elif "cpu" in controllers.split(","):
            base = next((root / name for name in (controllers, "cpu") if (root / name).is_dir()), root)
        else:
            continue
        # In a container its own group may be mounted as the root, whatever the path says.
        inner = base / path.lstrip("/")
        folder = inner if inner.is_dir() and ".." not in inner.parts else base
        while True:
            yield folder
            if folder == base:
                break
            folder = folder.parent


def _cores(folder: Path) -> int:
    """The limit of one control group in thousandths of a core; 0: none."""
    unified = _text(folder / "cpu.max").split()
    if len(unified) == 2:
        quota, period = unified
    else:
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    # Without a limit it is "max", or -1.
    if not (quota.isdecimal() and period.isdecimal()) or not int(quota) or not int(period):
        return 0
    return max(1, 1000 * int(quota) // int(period))


def _counts(folder: Path) -> Mapping[str, int]:
    lines = (line.split() for line in _text(folder / "cpu.stat").splitlines())
    counters = {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}
    # Version 1 counts nanoseconds.
    throttled_us = counters.get("throttled_usec", counters.get("throttled_time", 0) // 1000)
    return {
        "periods": counters.get("nr_periods", 0),
        "throttled_periods": counters.get("nr_throttled", 0),
        "throttled_us": throttled_us,
    }


def _text(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(_LIMIT).strip()
    except OSError:
        return ""


__all__ = ["CpuQuota"]
