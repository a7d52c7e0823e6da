"""Injects a fault into the training of one rank, from inside."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def burn(seconds: float) -> None:
    """Computes until this thread has used that much processor time."""
    until = time.thread_time() + seconds
    a = torch.randn(96, 96)
    while time.thread_time() < until:
        a = torch.tanh(a @ a)


def write_for(seconds: float) -> None:
    """Writes to a file, and waits for the disk each time, until that much time has gone by."""
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile(dir=Path.cwd()) as file:
        while time.monotonic() < until:
            file.write(b"x" * 65536)
            file.flush()
            os.fsync(file.fileno())


class Injection:
    """A fault, seen from one rank.

    Attributes:
        on: whether it acts now.
        mine: whether this rank is the one that it acts in; some act in all.
        count: steps of the training or block that it acts in.

    Args:
        fault: as `bed.causes` draws it; `name` "" for none.
        rank: of this process.
        step_s: the time of a step without the fault, in seconds.
        threads: of an ordinary rank.
        tell: reports an event to the runner.
    """

    def __init__(
        self, fault: dict[str, Any], rank: int, step_s: float, threads: int, tell: Callable[[str], None]
    ) -> None:
        self.fault = fault
        self.name = str(fault["name"])
        self.mine = fault.get("rank") in (None, rank)
        self._also = fault.get("also") == rank
        self._step_s = step_s
        self._threads = threads
        self._tell = tell
        self._random = random.Random(fault.get("seed", 0) * 64 + rank)
        self._cost_s = float(fault.get("share", 0.0)) * step_s
        self.on = False
        self.count = 1

    def switch(self, on: bool) -> None:
        """Lets it act, or not."""
        self.on = on
        if self.name == "threads" and self.mine:
            torch.set_num_threads(int(self.fault["threads"]) if on else self._threads)

    def load(self) -> None:
        """While the next batch is read."""
        if self._acts("loader") or (self._acts("tail") and self._random.random() < self.fault["chance"]):
            time.sleep(self._cost_s)

    def begin(self, step: int) -> bool:
        """At the start of a step's computation; True: skip the step."""
        if self._acts("busy") or self._acts("two") or (self._acts("change busy") and self._is_changed(step)):
            burn(self._cost_s)
        elif self._acts("disk"):
            write_for(self._cost_s)
        elif (
            self._acts("sleep")
            or (self._acts("change") and self._is_changed(step))
            or (self.on and self._also)
        ):
            time.sleep(self._cost_s)
        elif self._acts("drift"):
            burn(self._cost_s * step / self.count)
        elif (self._acts("burst") and self._random.random() < self.fault["chance"]) or (
            self._acts("rhythm") and step % self.fault["every"] == 0
        ):
            burn(self._cost_s)
        elif self._acts("uneven"):
            burn(self._random.random() * self._cost_s)
        elif self.name == "left out" and self.on:
            self._collective_that_one_leaves_out(step)
        elif self.name == "user collective" and self.on and step % 4 == 0:
            self._user_collective(step)
        elif self.on and self.mine and step == self.fault.get("step"):
            return self._strike()
        return False

    def scale(self, step: int) -> float:
        """What the loss is multiplied by."""
        return float("nan") if self._acts("nan") and step == self.fault["step"] else 1.0

    def end(self, step: int) -> None:
        """After the optimizer's step."""
        if self._acts("pause") and step % self.fault["every"] == self.fault["every"] - 1:
            time.sleep(self._cost_s)

    def batches(self, count: int) -> int:
        """How many batches this rank's loader has."""
        return int(self.fault["step"]) if self._acts("fewer") else count

    def _acts(self, name: str) -> bool:
        return self.on and self.mine and self.name == name

    def _is_changed(self, step: int) -> bool:
        return bool(self.fault["since"] <= step / self.count < self.fault["until"])

    def _strike(self) -> bool:
        if self.name in ("kill", "interrupt", "stop", "cut"):
            self._tell("strike")  # the runner does it, from outside, wherever this rank is by then
        elif self.name == "stuck":
            self._tell("stalled")
            while True:
                time.sleep(0.01)
        elif self.name == "exception":
            self._tell("stalled")
            raise ValueError("a sample that cannot be read")
        return self.name == "skip"

    def _collective_that_one_leaves_out(self, step: int) -> None:
        if self.mine and step == self.fault["step"]:
            self._tell("stalled")
        else:
            dist.all_reduce(torch.ones(4))

    def _user_collective(self, step: int) -> None:
        value = torch.ones(1000)
        if self.mine and step >= self.fault["step"]:
            self._tell("stalled")
            os._exit(3)
        dist.all_reduce(value)
