"""Where the ranks of a run live, and the faults that act from outside: links, cores, signals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

import psutil

from bed import quotas
from bed.truth import Fault


class Surroundings(Protocol):
    """Where ranks are started, and what the fault does to it."""

    interface: str

    def command(self, rank: int, command: Sequence[str]) -> list[str]:
        """The command line that starts this rank there."""
        ...

    def host(self, rank: int) -> str:
        """The network namespace in which this rank is to live; "" for this one."""
        ...

    def started(self, rank: int, pid: int) -> None:
        """A rank's process has been started."""
        ...

    def switch(self, on: bool) -> None:
        """Lets the fault act, or not."""
        ...

    def close(self) -> None:
        """Leaves nothing running."""
        ...


class ThisMachine:
    """All ranks on this machine, over the loopback interface; other load on one rank's core on request."""

    interface = "lo"

    def __init__(self, fault: Fault, pin: bool) -> None:
        self._fault = fault
        self._limits = quotas.Limits() if fault["name"] == "quota" else None
        self._cores = cores() if pin else []
        self._load: list[subprocess.Popen[bytes]] = []
        if fault["name"] == "core":
            for _ in range(int(fault["others"])):
                process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                self._load.append(process)
                psutil.Process(process.pid).cpu_affinity([self._core(int(fault["rank"]))])
            self.switch(False)

    def _core(self, rank: int) -> int:
        return self._cores[rank % len(self._cores)]

    def command(self, rank: int, command: Sequence[str]) -> list[str]:
        """As it is."""
        return list(command)

    def host(self, rank: int) -> str:
        """This machine."""
        return ""

    def started(self, rank: int, pid: int) -> None:
        """Pins the rank to its core, and puts it into its container."""
        if self._limits and self._fault["rank"] in (None, rank):
            self._limits.put(pid)
        if self._cores:
            psutil.Process(pid).cpu_affinity([self._core(rank)])

    def switch(self, on: bool) -> None:
        """Lets the other load run and the limit hold, or not."""
        if self._limits:
            self._limits.set(float(self._fault["cores"]) if on else None)
        for process in self._load:
            if on:
                psutil.Process(process.pid).resume()
            else:
                psutil.Process(process.pid).suspend()

    def close(self) -> None:
        """Ends the other load, and takes the container away."""
        for process in self._load:
            process.kill()
            process.wait()
        if self._limits:
            self._limits.close()


def cores() -> list[int]:
    """The cores that this process may use; empty where the system cannot pin processes."""
    mine = psutil.Process()
    return list(mine.cpu_affinity() or []) if hasattr(mine, "cpu_affinity") else []
