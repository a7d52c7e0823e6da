"""Buckets on an accelerator over Gloo: same bits as torch's builtin hook, and a trace that tells of the device.

Skipped where there is no CUDA device. The ranks share the first one.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import in_order
from support.models import batch, branches
from support.ranks import run_ranks
from support.trial_job import short_blocks, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.model.tried import tried_from_json
from pyddpdiag.paths import shared_setup
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import BucketTime, Flag, GradientValue, Kind
from pyddpdiag.trace.run import open_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

DEVICE = "cuda:0"
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
STEPS = 4
# Milliseconds on every device: gradients that nobody waits for are read before they are there.
LATE_CYCLES = 5_000_000


def _bits(module: nn.Module) -> list[bytes]:
    return [p.grad.cpu().contiguous().view(torch.uint8).numpy().tobytes() for p in module.parameters()]


def _train(rank: int, hook: str, dtype: torch.dtype, view: bool, folder: str) -> list[list[bytes]]:
    ddp = DistributedDataParallel(
        branches(dtype).to(DEVICE), device_ids=[0], bucket_cap_mb=0.002, gradient_as_bucket_view=view
    )
    found = []
    with pyddpdiag.Recorder(folder, capacity_mb=1, statistics_interval=1) as recorder:
        if hook == "builtin":
            ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        elif hook == "native":
            recorder.attach(ddp)
        elif hook == "shared":
            recorder.attach(ddp, shared_memory="require")
        elif hook == "timed":
            ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
        elif hook == "native_bf16":
            recorder.attach(ddp, compress="bf16")
        elif hook == "native_bf16_feedback":
            recorder.attach(ddp, compress="bf16", error_feedback=True)
        elif hook == "timed_bf16":
            ddp.register_comm_hook(recorder, pyddpdiag.timed_bf16_allreduce)
        for step in recorder.steps(range(STEPS)):
            ddp.zero_grad()
            loss = ddp(batch(rank, step, dtype).to(DEVICE)).square().mean()
            torch.cuda._sleep(LATE_CYCLES)
            loss.backward()
            found.append(_bits(ddp))
    return found


def _every_hook(
    rank: int, _: int, name: str, view: bool, hooks: Sequence[str]
) -> dict[str, list[list[bytes]]]:
    with tempfile.TemporaryDirectory() as folder:
        return {hook: _train(rank, hook, DTYPES[name], view, f"{folder}/{hook}") for hook in hooks}


@pytest.mark.parametrize("view", [False, True], ids=["copy", "view"])
@pytest.mark.parametrize("name", list(DTYPES))
def test_same_bits_as_the_builtin_hook(tmp_path: Path, name: str, view: bool) -> None:
    hooks = ["plain", "builtin", "native", "timed", "shared"]
    if name == "f16":
        # Its subnormal halves are rounded once less in shared memory: docs/shared-memory.md.
        hooks.remove("shared")
    answers = run_ranks(_every_hook, 2, tmp_path, name, view, hooks)
    for found in answers:
        assert all(found[hook] == found["builtin"] for hook in hooks)
    assert answers[0]["native"] == answers[1]["native"]
    assert answers[0]["native"][0] != answers[0]["native"][2]


def _values(bits: list[bytes]) -> np.ndarray:
    return np.concatenate([np.frombuffer(part, np.float32) for part in bits])


@pytest.mark.parametrize("hook", ["native_bf16", "native_bf16_feedback", "timed_bf16"])
def test_sixteen_bits_are_within_their_bound(tmp_path: Path, hook: str) -> None:
    for found in run_ranks(_every_hook, 2, tmp_path, "f32", False, ("builtin", hook)):
        for exact, short in zip(found["builtin"], found[hook], strict=True):
            # Each rank's half is rounded once and the sum once more: three roundings of 2^-8, on values that may be
            # as large as the larger of the two halves.
            largest = np.abs(_values(exact)).max() + 1
            assert np.abs(_values(exact) - _values(short)).max() <= 3 * 2**-8 * largest
            assert (_values(short) != 0).any()


def _traced(rank: int, _: int, folder: str, hook: str) -> None:
    _train(rank, hook, torch.float32, False, folder)


@pytest.mark.parametrize("hook", ["native", "timed", "shared"])
def test_the_trace_tells_of_the_device(tmp_path: Path, hook: str) -> None:
    run_ranks(_traced, 2, tmp_path, str(tmp_path / "trace"), hook)
    for rank in open_run(tmp_path / "trace").ranks:
        buckets = rank.of_kind(Kind.BUCKET)
        assert len(buckets) >= STEPS and (buckets["flags"] & Flag.DEVICE).all()
        shared = (buckets["flags"] & Flag.SHARED) != 0
        assert shared.any() if hook == "shared" else not shared.any()
        in_order(buckets, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.ENDED)
        # Where the device had finished the gradients: after the hook had them, before the sum was there.
        known = buckets["times"][:, BucketTime.DEVICE_READY]
        assert (known > 0).any()
        assert (known[known > 0] <= buckets["times"][known > 0, BucketTime.ENDED]).all()
        gradients = rank.of_kind(Kind.GRADIENT)
        assert len(gradients)
        squares = gradients["times"][:, GradientValue.SUM_SQUARES].view(np.float64)
        assert np.isfinite(squares).all() and (squares > 0).any()


def _busy(rank: int, _: int, folder: str, shared: Literal["off", "require"]) -> None:
    ddp = DistributedDataParallel(branches(torch.float32).to(DEVICE), device_ids=[0])
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp, shared_memory=shared)
        for step in recorder.steps(range(40)):
            loss = ddp(batch(rank, step, torch.float32).to(DEVICE)).square().mean()
            if rank == 1:
                torch.cuda._sleep(20 * LATE_CYCLES)
            loss.backward()


@pytest.mark.parametrize("shared", ["off", "require"])
def test_a_device_that_computes_longer_makes_its_rank_late(tmp_path: Path, shared: str) -> None:
    run_ranks(_busy, 2, tmp_path, str(tmp_path / "trace"), shared)
    report = load_report(tmp_path / "trace")
    late = [(one.rank, one.cause) for one in report.verdict.findings if one.kind == "late_rank"]
    assert late == [(1, "device")], report.verdict.findings
    waits, computes = (rank.exposed_ms.median for rank in report.ranks)
    assert computes < waits / 4


def _reduced(rank: int, _: int, shared: Literal["off", "require"]) -> tuple[list[bytes], list[bytes]]:
    by_hand, reduced = branches(torch.float32).to(DEVICE), branches(torch.float32).to(DEVICE)
    reducer = pyddpdiag.GradientReducer(reduced.named_parameters(), bucket_cap_mb=0.002, shared_memory=shared)
    for module in (by_hand, reduced):
        module(batch(rank, 0, torch.float32).to(DEVICE)).square().mean().backward()
    reducer.all_reduce()
    reducer.close()
    for parameter in by_hand.parameters():
        parameter.grad /= 2
        dist.all_reduce(parameter.grad)
    return _bits(by_hand), _bits(reduced)


@pytest.mark.parametrize("shared", ["off", "require"])
def test_the_reducer_averages_as_a_loop_by_hand(tmp_path: Path, shared: str) -> None:
    for by_hand, reduced in run_ranks(_reduced, 2, tmp_path, shared):
        assert reduced == by_hand


def _poisoned(rank: int, _: int, folder: str) -> str:
    ddp = DistributedDataParallel(branches(torch.float32).to(DEVICE), device_ids=[0])
    with pyddpdiag.Recorder(folder, sentinel="raise", sentinel_interval=1) as recorder:
        recorder.attach(ddp)
        x = batch(rank, 0, torch.float32).to(DEVICE)
        if rank == 1:
            x[0, 0] = float("nan")
        try:
            ddp(x).square().mean().backward()
        except pyddpdiag.errors.GradientError as error:
            return str(error)
    return ""


def test_the_sentinel_sees_a_nan_on_the_device(tmp_path: Path) -> None:
    for said in run_ranks(_poisoned, 2, tmp_path, str(tmp_path / "trace")):
        assert "rank 1" in said


def _pinned(rank: int, _: int, folder: str) -> list[bool]:
    pin, seen = shared_setup._pin, []

    def watched(address: int, size: int) -> bool:
        seen.append(pin(address, size))
        return seen[-1]

    shared_setup._pin = watched
    _train(rank, "shared", torch.float32, False, folder)
    return seen


def test_staging_memory_is_registered_with_the_device(tmp_path: Path) -> None:
    for seen in run_ranks(_pinned, 2, tmp_path, str(tmp_path / "trace")):
        assert seen and all(seen)


PASSES = 110
KINDS: dict[str, dict[str, Any]] = {"plain": {}, "views": {"views": True}, "accumulated": {"accumulate": 3}}


def _tried(rank: int, _: int, folder: str) -> dict[str, Any]:
    short_blocks()
    seen = {}
    for kind, how in KINDS.items():
        untouched, _ = train(rank, None, PASSES, device=DEVICE, **how)
        trial = pyddpdiag.Trial(minutes=5)
        seen[kind] = (untouched, *train(rank, Path(folder, kind), PASSES, trial, device=DEVICE, **how))
    return seen


def test_a_trial_keeps_the_bits_of_the_weights(tmp_path: Path) -> None:
    answers = run_ranks(_tried, 2, tmp_path, str(tmp_path / "run"), timeout_s=400)
    for kind in KINDS:
        untouched, tried, noted = zip(*(each[kind] for each in answers), strict=True)
        assert set(tried) == set(untouched) and len(set(untouched)) == 1, kind
        trial = tried_from_json(noted[0])
        assert trial is not None and trial.today.blocks
        assert "shared memory" in {each.name for each in trial.cures if each.blocks}, kind


def _killed(rank: int, _: int, folder: str) -> tuple[str, float]:
    ddp = DistributedDataParallel(branches(torch.float32).to(DEVICE), device_ids=[0], bucket_cap_mb=0.002)
    recorder = pyddpdiag.Recorder(folder)
    recorder.attach(ddp, shared_memory="require")
    begin = time.monotonic()
    try:
        for step in range(50):
            begin = time.monotonic()
            loss = ddp(batch(rank, step, torch.float32).to(DEVICE)).square().mean()
            if rank == 1 and step == 20:
                torch.cuda._sleep(LATE_CYCLES)
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
    except (PyddpdiagError, RuntimeError) as error:
        return str(error), time.monotonic() - begin
    return "", 0.0


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    said, took_s = run_ranks(_killed, 2, tmp_path, str(tmp_path / "trace"), lost=frozenset({1}))[0]
    assert "rank 1" in said and took_s < 30, (said, took_s)
