"""Gradients that travel in 16 bits: the stated error bound, equal bits on all ranks, and both ways to register."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import complete
from support.models import batch, branches, gradient_bytes
from support.ranks import run_ranks
from support.trained import off_by_rounding
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.model.words import size
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.text import print_text
from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import read_trace
from pyddpdiag.trace.run import open_run

HOOKS = {"bf16": pyddpdiag.timed_bf16_allreduce, "fp16": pyddpdiag.timed_fp16_allreduce}
UNIT = {"bf16": 2.0**-8, "fp16": 2.0**-11}
STEPS = 5


def _gradients(rank: int, way: str, compress: str, folder: str) -> list[np.ndarray[Any, Any]]:
    """Each step's gradients of a model that never changes, one flat vector a step."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(f"{folder}/{way}-{compress}", capacity_mb=1) as recorder:
        if way == "native":
            recorder.attach(ddp, compress=compress)  # type: ignore[arg-type]
        elif way == "timed":
            ddp.register_comm_hook(recorder, HOOKS[compress])
        elif way == "torch":
            ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        found = []
        for step in range(STEPS):
            ddp.zero_grad()
            ddp(batch(rank, step, torch.float32)).square().mean().backward()
            found.append(_flat(ddp))
    return found


def _flat(ddp: DistributedDataParallel) -> np.ndarray[Any, Any]:
    return np.concatenate([p.grad.numpy().ravel().copy() for p in ddp.parameters() if p.grad is not None])


def _local(rank: int) -> list[np.ndarray[Any, Any]]:
    model = branches(torch.float32)
    found = []
    for step in range(STEPS):
        model.zero_grad()
        model(batch(rank, step, torch.float32)).square().mean().backward()
        found.append(
            np.concatenate([p.grad.numpy().ravel().copy() for p in model.parameters() if p.grad is not None])
        )
    return found


def _job(rank: int, _: int, folder: str) -> dict[str, list[np.ndarray[Any, Any]]]:
    found = {
        f"{way} {compress}": _gradients(rank, way, compress, folder)
        for compress in HOOKS
        for way in ("native", "timed")
    }
    return {**found, "f32": _gradients(rank, "torch", "f32", folder), "own": _local(rank)}


@pytest.fixture(scope="module", params=[2, 3], ids=["2 ranks", "3 ranks"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Path, Any]:
    folder = tmp_path_factory.mktemp("compressed")
    return request.param, folder, run_ranks(_job, request.param, folder, str(folder))


@pytest.mark.parametrize("compress", HOOKS)
@pytest.mark.parametrize("way", ["native", "timed"])
def test_error_is_within_the_stated_bound(trained: tuple[int, Path, Any], way: str, compress: str) -> None:
    world_size, _, ranks = trained
    for step in range(STEPS):
        exact = ranks[0]["f32"][step].astype(np.float64)
        put_in = np.mean([np.abs(rank["own"][step].astype(np.float64)) for rank in ranks], axis=0)
        bound = world_size * UNIT[compress] * put_in * (1 + 2**-6) + world_size * 2.0**-25
        error = np.abs(ranks[0][f"{way} {compress}"][step] - exact)
        assert (error <= bound).all(), float((error / np.maximum(bound, 1e-30)).max())
        assert error.max() > 0, "nothing was rounded: it did not travel in 16 bits"


@pytest.mark.parametrize("compress", HOOKS)
def test_all_ranks_and_both_ways_hold_the_same_bits(trained: tuple[int, Path, Any], compress: str) -> None:
    _, _, ranks = trained
    for step in range(STEPS):
        bits = {rank[f"{way} {compress}"][step].tobytes() for rank in ranks for way in ("native", "timed")}
        assert len(bits) == 1


def test_trace_tells_what_travelled(trained: tuple[int, Path, Any]) -> None:
    _, folder, _ = trained
    for way in ("native", "timed"):
        buckets = complete(read_trace(folder / f"{way}-bf16" / "rank_0.ddptrace"), Kind.BUCKET)
        assert (buckets["flags"] & Flag.COMPRESSED).all()
        assert set(buckets["dtype"]) == {4}
        gradients = complete(read_trace(folder / f"{way}-bf16" / "rank_0.ddptrace"), Kind.GRADIENT)
        in_first_step = buckets[buckets["step"] == 0]
        assert in_first_step["bytes"].sum() * 2 == gradients["bytes"].sum(), (
            "f32 gradients, twice what travelled"
        )


def test_report_tells_what_is_saved(trained: tuple[int, Path, Any]) -> None:
    report = load_report(trained[1] / "native-bf16")
    assert {(bucket.dtype, bucket.gradient_dtype) for bucket in report.buckets} == {("bfloat16", "float32")}
    out = io.StringIO()
    print_text(report, out, tables=True)
    words = " ".join(out.getvalue().split())
    total = sum(p.numel() for p in branches(torch.float32).parameters())
    assert f"In bfloat16, {size(2 * total)} travel in place of {size(4 * total)} of gradients." in words


def _feedback_job(_: int, __: int, folder: str) -> dict[bool, float]:
    return off_by_rounding(folder)


def test_error_feedback_makes_up_for_rounding(tmp_path: Path) -> None:
    for off in run_ranks(_feedback_job, 2, tmp_path, str(tmp_path)):
        assert off[False] > 1e-3, "the same rounding in every step adds up"
        assert off[True] < off[False] / 5


def _overflow_job(_: int, __: int, folder: str) -> list[float]:
    """The averages of a gradient that is too large for fp16 in one step, and 1 in the next."""
    model = torch.nn.Linear(64, 4, bias=False)
    ddp = DistributedDataParallel(model)
    found = []
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp, compress="fp16", error_feedback=True)
        for value in (1.0, 1.0, 1e6, 1.0):
            ddp.zero_grad()
            ddp(torch.full((1, 64), value)).sum().backward()
            assert model.weight.grad is not None
            found.append(float(model.weight.grad.max()))
    return found


def test_an_overflow_of_fp16_spoils_one_step_and_no_more(tmp_path: Path) -> None:
    for found in run_ranks(_overflow_job, 2, tmp_path, str(tmp_path)):
        assert found == [1.0, 1.0, float("inf"), 1.0]


def _other_types_job(rank: int, _: int, folder: str) -> bool:
    bits = []
    for compress in (None, "bf16"):
        ddp = DistributedDataParallel(branches(torch.bfloat16), bucket_cap_mb=0.002)
        with pyddpdiag.Recorder(f"{folder}/{compress}", capacity_mb=1) as recorder:
            recorder.attach(ddp, compress=compress)  # type: ignore[arg-type]
            ddp(batch(rank, 0, torch.bfloat16)).square().mean().backward()
            bits.append(gradient_bytes(ddp))
    return bits[0] == bits[1]


def test_gradients_of_16_bits_travel_as_they_are(tmp_path: Path) -> None:
    assert run_ranks(_other_types_job, 2, tmp_path, str(tmp_path)) == [True, True]


def _changing_job(rank: int, _: int, folder: str) -> None:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    hooks = list(HOOKS.values())
    step = 0
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        # A lambda has no annotations, of which DDP takes few.
        ddp.register_comm_hook(recorder, lambda state, bucket: hooks[step % 2](state, bucket))
        for step in range(4):
            ddp(batch(rank, step, torch.float32)).square().mean().backward()


def test_a_hook_that_changes_gets_what_it_asks_for(tmp_path: Path) -> None:
    run_ranks(_changing_job, 2, tmp_path, str(tmp_path / "run"))
    for rank in open_run(tmp_path / "run").ranks:
        buckets = complete(rank, Kind.BUCKET)
        # As DTYPES of the trace: 4 is bfloat16, 3 is float16.
        assert set(zip((buckets["step"] % 2).tolist(), buckets["dtype"].tolist(), strict=True)) == {
            (0, 4),
            (1, 3),
        }
