"""A rank that trains with DDP while another thread closes its recorder at any moment."""

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import RecorderClosedError
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import is_in_flight, read_trace
from support.hooked import backward, register
from support.models import branches

WAYS: tuple[str, ...] = ("native", "timed", "steps")


def rounds(rank: int, world_size: int, folder: str, first: int, count: int) -> int:
    """So many recorders, each closed while its module trains; how many records they left.

    One rank: after the close a registered hook raises, and others would wait for it.
    """
    assert world_size == 1
    return sum(_round(rank, Path(folder, str(number)), number) for number in range(first, first + count))


def _round(rank: int, folder: Path, number: int) -> int:
    way = WAYS[number % len(WAYS)]
    chance = random.Random(number)
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    # In some rounds the sentinel calls back after every pass, in some the close comes in the first pass, in which
    # every bucket's layout is new and calls back.
    watched, early = number % 4 == 1, number % 4 == 3
    recorder = pyddpdiag.Recorder(
        folder,
        capacity_mb=0.0625,
        statistics_interval=1,
        sentinel="raise" if watched else "off",
        sentinel_interval=1,
    )
    register(recorder, ddp, "timed" if way == "timed" else "native")
    begun, ended, enough = threading.Event(), threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def train() -> None:
        loop = recorder.steps(range(10**6)) if way == "steps" else range(10**6)
        for step in loop:
            if enough.is_set():
                return
            ddp.zero_grad()
            backward(ddp, rank, step)
            if step == 1:
                begun.set()

    def others() -> None:
        # Other collectives, which the worker probe records.
        while not ended.is_set():
            dist.all_reduce(torch.ones(16))
            time.sleep(0)

    threads = [threading.Thread(target=_run, args=(work, failed)) for work in (train, others)]
    for thread in threads:
        thread.start()
    assert early or begun.wait(60)
    time.sleep(chance.choice((0.0, chance.uniform(0.0, 0.005), chance.uniform(0.0, 0.02))))
    closers = [threading.Thread(target=recorder.close) for _ in range(1 + number % 2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(60)
        assert not closer.is_alive(), f"round {number}: close() hangs"
    if way != "timed":  # DDP goes on without the recorder
        time.sleep(0.01)
        enough.set()
    threads[0].join(60)
    ended.set()
    threads[1].join(60)
    assert not any(thread.is_alive() for thread in threads), f"round {number}: a thread hangs"
    _check_error(failed, way)
    return _check_trace(recorder, number, early=early)


def _run(work: Callable[[], None], failed: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        failed.append(error)


def _check_error(failed: list[BaseException], way: str) -> None:
    """The training ended with the error of a closed recorder where its hook is ours, and nothing else failed."""
    if way != "timed":
        assert failed == []
        return
    assert len(failed) == 1, failed
    [error] = failed
    assert isinstance(error, (RecorderClosedError, RuntimeError)), error
    assert "closed" in str(error), error


def _check_trace(recorder: pyddpdiag.Recorder, number: int, *, early: bool) -> int:
    trace = read_trace(recorder.path)
    assert trace.header.closed
    assert (trace.torn, trace.malformed, trace.unknown) == (0, 0, 0), f"round {number}"
    buckets = trace.of_kind(Kind.BUCKET)
    # What was under way came to its end; only the pass that the closed recorder broke off was left by DDP.
    assert int(is_in_flight(buckets).sum()) <= len(recorder.core.layouts())
    sidecar = json.loads(recorder.path.with_suffix(".json").read_text(encoding="utf-8"))
    assert sidecar["closed"] is True
    assert not recorder.path.with_suffix(".json.tmp").exists()
    known = {bucket["id"] for bucket in sidecar["buckets"]}
    # A bucket that turned up in the moment of the close may have come too late for the sidecar.
    assert early or {f"{identity:016x}" for identity in set(buckets["reference"].tolist())} <= known
    return len(trace)
