"""A container's limit of processor time, by control groups of version 1 or 2 (Linux, root)."""

from __future__ import annotations

import os
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


class Limits:
    """A control group for some ranks, without a limit at first.

    Ranks are in it from their start; what is read of it is what a container's rank reads.
    """

    def __init__(self) -> None:
        self._unified = (_ROOT / "cgroup.controllers").exists()
        self._folder = (_ROOT if self._unified else _ROOT / "cpu") / f"bed-{os.getpid()}"
        self._folder.mkdir(exist_ok=True)

    def put(self, pid: int) -> None:
        """Moves a process into it."""
        (self._folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def set(self, cores: float | None) -> None:
        """The limit of each period of 100 ms, in cores; None: none."""
        quota = "max" if cores is None else str(round(cores * _PERIOD_US))
        if self._unified:
            (self._folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}", encoding="ascii")
        else:
            quota = "-1" if cores is None else quota
            (self._folder / "cpu.cfs_quota_us").write_text(quota, encoding="ascii")

    def close(self) -> None:
        """Takes it away; its processes have ended or go back."""
        home = (_ROOT if self._unified else _ROOT / "cpu") / "cgroup.procs"
        for pid in (self._folder / "cgroup.procs").read_text(encoding="ascii").split():
            home.write_text(pid, encoding="ascii")
        for _ in range(50):
            try:
                self._folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)


def why_not() -> str:
    """Why no limit can be made here, "" if it can."""
    limits = None
    try:
        limits = Limits()
        limits.set(1.0)
    except OSError as error:
        return f"control groups cannot be written here: {error}"
    finally:
        if limits is not None:
            limits.close()
    return ""
