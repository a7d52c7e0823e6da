"""Buckets on an accelerator over Gloo: same bits as torch's builtin hook, and a trace that tells of the device.

Skipped where there is no CUDA device. The ranks share the first one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import in_order
from support.models import batch, branches
from support.ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import BucketTime, Flag, GradientValue, Kind
from pyddpdiag.trace.run import open_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

DEVICE = "cuda:0"
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
STEPS = 4


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
            ddp(batch(rank, step, dtype).to(DEVICE)).square().mean().backward()
            found.append(_bits(ddp))
    return found


def _every_hook(
    rank: int, _: int, name: str, view: bool, hooks: tuple[str, ...]
) -> dict[str, list[list[bytes]]]:
    with tempfile.TemporaryDirectory() as folder:
        return {hook: _train(rank, hook, DTYPES[name], view, f"{folder}/{hook}") for hook in hooks}


@pytest.mark.parametrize("view", [False, True], ids=["copy", "view"])
@pytest.mark.parametrize("name", list(DTYPES))
def test_same_bits_as_the_builtin_hook(tmp_path: Path, name: str, view: bool) -> None:
    answers = run_ranks(_every_hook, 2, tmp_path, name, view, ("plain", "builtin", "native", "timed"))
    for found in answers:
        assert found["native"] == found["builtin"] == found["timed"] == found["plain"]
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


@pytest.mark.parametrize("hook", ["native", "timed"])
def test_the_trace_tells_of_the_device(tmp_path: Path, hook: str) -> None:
    run_ranks(_traced, 2, tmp_path, str(tmp_path / "trace"), hook)
    for rank in open_run(tmp_path / "trace").ranks:
        buckets = rank.of_kind(Kind.BUCKET)
        assert len(buckets) >= STEPS and (buckets["flags"] & Flag.DEVICE).all()
        in_order(buckets, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.ENDED)
        # Where the device had finished the gradients: after the hook had them, before the sum was there.
        known = buckets["times"][:, BucketTime.DEVICE_READY]
        assert (known > 0).any()
        assert (known[known > 0] <= buckets["times"][known > 0, BucketTime.ENDED]).all()
        gradients = rank.of_kind(Kind.GRADIENT)
        assert len(gradients)
        squares = gradients["times"][:, GradientValue.SUM_SQUARES].view(np.float64)
        assert np.isfinite(squares).all() and (squares > 0).any()


def _reduced(rank: int, _: int) -> tuple[list[bytes], list[bytes]]:
    by_hand, reduced = branches(torch.float32).to(DEVICE), branches(torch.float32).to(DEVICE)
    reducer = pyddpdiag.GradientReducer(reduced.named_parameters(), bucket_cap_mb=0.002)
    for module in (by_hand, reduced):
        module(batch(rank, 0, torch.float32).to(DEVICE)).square().mean().backward()
    reducer.all_reduce()
    reducer.close()
    for parameter in by_hand.parameters():
        parameter.grad /= 2
        dist.all_reduce(parameter.grad)
    return _bits(by_hand), _bits(reduced)


def test_the_reducer_averages_as_a_loop_by_hand(tmp_path: Path) -> None:
    for by_hand, reduced in run_ranks(_reduced, 2, tmp_path):
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
