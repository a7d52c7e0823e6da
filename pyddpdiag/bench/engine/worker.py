"""One case in one of its ranks: set up once, then measured round by round."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.engine import hooks
from pyddpdiag.workloads.fixed import fixed_batch

# DDP rebuilds its buckets after the first step; allocators need one more to settle.
_WARM_UP = 3
_TRACE_MB = 1.0


class Worker:
    """A case that is set up in this rank.

    Attributes:
        parameters, batch_size, dataset: of a step.
        bytes: memory that it takes, roughly.
    """

    parameters = batch_size = 0
    dataset = ""
    bytes: int

    def round(self, steps: int) -> float:
        """Seconds per step, over `steps` steps after an untimed one."""
        one = self._one
        one()
        begin = time.perf_counter()
        for _ in range(steps):
            one()
        return (time.perf_counter() - begin) / steps

    def trace(self, steps: int) -> str:
        """Completes the case's trace; returns whose trace it is, "" if there is none."""
        del steps
        return ""

    def close(self) -> None:
        """Releases what outlives it."""

    def _one(self) -> None:
        raise NotImplementedError


class AllReduces(Worker):
    """All-reduces without training, several of them in flight."""

    def __init__(self, case: Case, group: dist.ProcessGroup) -> None:
        elements = max(1, case.bytes // 4 // case.chunks)
        self._buffers = [torch.zeros(elements) for _ in range(case.chunks)]
        self._group = group
        self.bytes = case.bytes
        self._one()

    def _one(self) -> None:
        works = [dist.all_reduce(b, group=self._group, async_op=True) for b in self._buffers]
        for work in works:
            work.wait()


class Steps(Worker):
    """Training steps: forward, backward, averaged gradients. No optimizer: it is the same in all cases."""

    def __init__(self, case: Case, group: dist.ProcessGroup, folder: Path) -> None:
        self._case, self._group, self._folder = case, group, folder
        self._hook = hooks.find(case.hook)
        self._recorder: Any = None
        self._build(case.hook, self._hook.records)
        self.parameters = sum(p.numel() for p in self._ddp.parameters())
        # Parameters, gradients, buckets, and the same again for the activations that forward keeps.
        self.bytes = 16 * self.parameters
        self.batch_size, self.dataset = self._workload.batch_size, self._workload.dataset

    def round(self, steps: int) -> float:
        """See `Worker`."""
        if self._recorder is None:
            return super().round(steps)
        self._one()
        self._recorder.resume()
        begin = time.perf_counter()
        for _ in self._recorder.steps(range(steps)):
            self._one()
        seconds = (time.perf_counter() - begin) / steps
        self._recorder.pause()
        return seconds

    def trace(self, steps: int) -> str:
        """See `Worker`."""
        source = "its own trace"
        if self._recorder is None:
            if not self._hook.twin:
                return ""
            self.close()
            self._hook = hooks.find("native")
            self._build("native", True)
            self.round(steps)
            source = "a twin with the native hook"
        self.close()
        return source

    def close(self) -> None:
        """See `Worker`."""
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
        self._ddp: Any = None
        self._workload: Any = None

    def _build(self, hook: str, records: bool) -> None:
        self._workload = fixed_batch(self._case.model)
        cap = self._case.bucket_cap_mb
        options: dict[str, Any] = {} if cap is None else {"bucket_cap_mb": cap}
        self._ddp = DistributedDataParallel(
            self._workload.module,
            process_group=self._group,
            **options,
        )
        if records:
            self._recorder = pyddpdiag.Recorder(
                self._folder, process_group=self._group, capacity_mb=_TRACE_MB
            )
            self._recorder.pause()
        hooks.find(hook).register(self._ddp, self._recorder, self._group)
        for _ in range(_WARM_UP):
            self._one()

    def _one(self) -> None:
        self._ddp.zero_grad(set_to_none=False)
        self._workload.loss(self._ddp).backward()


def build(case: Case, group: dist.ProcessGroup, folder: Path) -> Worker:
    """Sets a case up in this rank; all members of the group must call it."""
    return AllReduces(case, group) if case.kind == "allreduce" else Steps(case, group, folder)
