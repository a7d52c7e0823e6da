"""DDP training steps with each communication hook, in a process that is a rank."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from harness.rounds import interleave
from pyddpdiag.bench.engine.hooks import find
from pyddpdiag.ranks.session import Session

# "timed, paused": without the probes, what is left is the way into Python.
HOOKS = ("plain", "builtin", "native", "timed", "timed, paused", "torch python hook", "torch.profiler")
SAME = {"torch.profiler": "builtin", "timed, paused": "timed"}


def tiny_model(buckets: int) -> tuple[torch.nn.Module, torch.Tensor, float]:
    """One bucket of 1 KiB per layer: the step is almost nothing but the price of buckets."""
    layers = [torch.nn.Linear(16, 16, bias=False) for _ in range(buckets)]
    return torch.nn.Sequential(*layers), torch.randn(4, 16), 16 * 16 * 4 / 2**20


def full_model() -> tuple[torch.nn.Module, torch.Tensor, float]:
    """25 million parameters in 12 buckets at 8 MiB."""
    layers = [torch.nn.Linear(1448, 1448) for _ in range(12)]
    return torch.nn.Sequential(*layers), torch.randn(16, 1448), 8.0


def _register(ddp: DistributedDataParallel, hook: str, recorder: pyddpdiag.Recorder) -> None:
    if hook == "torch python hook":
        ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    else:
        find(SAME.get(hook, hook)).register(ddp, recorder, None)


def _stepper(
    hook: str, make: Callable[[], Any], recorder: pyddpdiag.Recorder, steps: int
) -> Callable[[], float]:
    """A function that does `steps` training steps and returns the seconds of one."""
    torch.manual_seed(0)
    model, x, bucket_cap_mb = make()
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    _register(ddp, hook, recorder)

    def one() -> None:
        ddp.zero_grad(set_to_none=False)
        ddp(x).sum().backward()

    def run() -> float:
        # Paused, the probe is off, also the one that sees the workers: the others must not pay for it.
        (recorder.resume if hook in ("native", "timed") else recorder.pause)()
        profiler = None
        if hook == "torch.profiler":
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            profiler.start()
        one()
        begin = time.perf_counter()
        for _ in range(steps):
            one()
        seconds = (time.perf_counter() - begin) / steps
        if profiler is not None:
            profiler.stop()
        return seconds

    for _ in range(3):
        one()
    return run


@contextmanager
def _busy_thread(wanted: bool) -> Iterator[None]:
    """A Python thread that never lets go of the interpreter lock by itself, like a loader that decodes."""
    stop = threading.Event()

    def spin() -> None:
        total = 0
        while not stop.is_set():
            total += sum(range(100))

    thread = threading.Thread(target=spin)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if wanted:
            thread.join()


def measure(
    session: Session, kind: str, hooks: list[str], rounds: int, steps: int, busy: bool
) -> dict[str, list[float]]:
    """Seconds per step of each hook in each round; every rank runs this with the same arguments."""
    del session
    make = full_model if kind == "full" else lambda: tiny_model(int(kind))
    with tempfile.TemporaryDirectory() as folder, pyddpdiag.Recorder(folder) as recorder:
        variants = {hook: _stepper(hook, make, recorder, steps) for hook in hooks}
        gc.collect()
        gc.disable()
        with _busy_thread(busy):
            return interleave(variants, rounds)
