"""Ranks of one host that average their gradients in shared memory."""

import gc
import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support import added_up
from support.models import batch, branches, gradient_bytes
from support.ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.errors import ReductionError
from pyddpdiag.paths import processes, shared_setup
from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import read_trace

STEPS = 4
DTYPES = {"f32": torch.float32, "f64": torch.float64}
OPTIONS: dict[str, dict[str, Any]] = {
    "one big bucket": {"bucket_cap_mb": 25},
    "find_unused_parameters": {"find_unused_parameters": True},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "megabytes": {"bucket_cap_mb": 3},
}
CASES = [*DTYPES, *OPTIONS]


def _model(case: str, dtype: torch.dtype) -> nn.Module:
    if case != "megabytes":
        return branches(dtype, alternate=case == "find_unused_parameters")
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(12, 700), nn.Tanh(), nn.Linear(700, 900), nn.Tanh(), nn.Linear(900, 700))


def _buckets_by_path(path: Path) -> set[bool]:
    """Whether buckets in the trace went through shared memory."""
    buckets = read_trace(path).of_kind(Kind.BUCKET)
    return {bool(flags & Flag.SHARED) for flags in buckets["flags"]}


def _train(rank: int, hook: str, case: str) -> list[list[bytes]]:
    dtype = DTYPES.get(case, torch.float32)
    ddp = DistributedDataParallel(_model(case, dtype), **{"bucket_cap_mb": 0.002, **OPTIONS.get(case, {})})
    bits = []
    with tempfile.TemporaryDirectory() as folder, pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        if hook == "builtin":
            ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        elif hook == "attach":
            recorder.attach(ddp, shared_memory="require")
        else:
            ddp.register_comm_hook(None, recorder.hook(shared_memory="require"))
        for step in recorder.steps(range(STEPS)):
            ddp.zero_grad()
            ddp(batch(rank, step, dtype)).square().mean().backward()
            bits.append(gradient_bytes(ddp))
        recorder.close()
        assert hook == "builtin" or _buckets_by_path(recorder.path) == {True}
    return bits


def _all_cases(rank: int, _: int) -> dict[tuple[str, str], list[list[bytes]]]:
    return {
        (case, hook): _train(rank, hook, case) for case in CASES for hook in ("builtin", "attach", "hook")
    }


@pytest.mark.parametrize("ranks", [2, 3])
def test_same_bits_as_the_builtin_hook(tmp_path: Path, ranks: int) -> None:
    answers = run_ranks(_all_cases, ranks, tmp_path)
    for case in CASES:
        for hook in ("attach", "hook"):
            for answer in answers:
                assert answer[case, hook] == answer[case, "builtin"], (case, hook)
        steps = answers[0][case, "attach"]
        assert any(any(gradient) for gradient in steps[0])
        assert steps[0] != steps[2]


def _until_killed(rank: int, _: int, folder: str) -> tuple[str, float]:
    ddp = DistributedDataParallel(_model("megabytes", torch.float32), bucket_cap_mb=1)
    recorder = pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1)
    recorder.attach(ddp, shared_memory="require")
    died = Path(folder, "died")
    try:
        for step in range(100_000):
            if rank == 1 and step == 5:
                died.write_text(repr(time.monotonic()))
                os.kill(os.getpid(), 9)
            ddp(batch(rank, step, torch.float32)).square().mean().backward()
    except RuntimeError as error:
        return str(error), time.monotonic() - float(died.read_text())
    return "no error", 0.0


def test_a_killed_rank_is_named_by_all_others(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").iterdir()) if Path("/dev/shm").is_dir() else set()
    answers = run_ranks(_until_killed, 3, tmp_path, str(tmp_path), lost=frozenset({1}))
    for rank in (0, 2):
        text, seconds = answers[rank]
        assert "rank 1 (process " in text, text
        assert "has ended in the middle of training" in text
        assert seconds < 2
    if before or Path("/dev/shm").is_dir():
        assert not {p for p in set(Path("/dev/shm").iterdir()) - before if "pyddpdiag" in p.name}


def _outlives_everything(rank: int, _: int, view: bool) -> bool:
    group = dist.new_group([0, 1])
    ddp = DistributedDataParallel(
        branches(torch.float32), process_group=group, gradient_as_bucket_view=view, bucket_cap_mb=0.002
    )
    with tempfile.TemporaryDirectory() as folder:
        recorder = pyddpdiag.Recorder(folder, capacity_mb=1)
        recorder.attach(ddp, shared_memory="require")
        for step in range(3):
            ddp(batch(rank, step, torch.float32)).square().mean().backward()
        gradients = [p.grad for p in ddp.parameters()]
        copies = [g.clone() for g in gradients]
        recorder.close()
        del ddp, recorder
        dist.destroy_process_group(group)
        gc.collect()
    return all(torch.equal(a, b) for a, b in zip(gradients, copies, strict=True))


@pytest.mark.parametrize("view", [False, True])
def test_gradients_stay_when_all_else_is_gone(tmp_path: Path, view: bool) -> None:
    assert run_ranks(_outlives_everything, 2, tmp_path, view) == [True, True]


def _two_recorders(rank: int, _: int, folder: str) -> bool:
    """Two modules at once, each attached to a recorder of its own."""
    modules = [DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002) for _ in range(3)]
    recorders = [pyddpdiag.Recorder(f"{folder}/{i}", capacity_mb=1, overwrite=True) for i in range(2)]
    for recorder, module in zip(recorders, modules, strict=False):
        recorder.attach(module, shared_memory="require")
    for step in range(4):
        loss = sum(module(batch(rank, step, torch.float32)).square().mean() for module in modules)
        for module in modules:
            module.zero_grad()
        loss.backward()
    for recorder in recorders:
        recorder.close()
    expected = gradient_bytes(modules[2])
    return gradient_bytes(modules[0]) == expected and gradient_bytes(modules[1]) == expected


def test_two_recorders_at_once(tmp_path: Path) -> None:
    assert run_ranks(_two_recorders, 2, tmp_path, str(tmp_path)) == [True, True]


def _subgroup(rank: int, _: int, folder: str) -> bool:
    """Ranks 1 and 2 of 3 train without rank 0, whose numbers in the group are 0 and 1."""
    group = dist.new_group([1, 2])
    if rank == 0:
        return True
    results = []
    for hooked in (False, True):
        ddp = DistributedDataParallel(branches(torch.float32), process_group=group, bucket_cap_mb=0.002)
        recorder = pyddpdiag.Recorder(f"{folder}/{hooked}", capacity_mb=1)
        if hooked:
            recorder.attach(ddp, shared_memory="require")
        for step in range(3):
            ddp.zero_grad()
            ddp(batch(rank, step, torch.float32)).square().mean().backward()
        recorder.close()
        results.append(gradient_bytes(ddp))
    return results[0] == results[1]


def test_a_subgroup(tmp_path: Path) -> None:
    assert run_ranks(_subgroup, 3, tmp_path, str(tmp_path)) == [True, True, True]


def _with_loader(rank: int, _: int, folder: str) -> int:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    rows = [batch(rank, step, torch.float32, rows=1)[0] for step in range(32)]
    done = 0
    with pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1) as recorder:
        recorder.attach(ddp, shared_memory="require")
        for _ in range(3):
            loader = DataLoader(rows, batch_size=8, num_workers=2, multiprocessing_context="fork")
            for rows_now in recorder.steps(loader):
                ddp(rows_now).square().mean().backward()
                done += 1
    return done


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_loader_workers_are_forked_meanwhile(tmp_path: Path) -> None:
    assert run_ranks(_with_loader, 2, tmp_path, str(tmp_path)) == [12, 12]


def _one_cannot(rank: int, _: int, folder: str, mode: str) -> str:
    """Rank 1 has no access to the memory of the others."""
    if rank == 1:

        def refuse(name: str, process: int) -> Any:
            raise OSError(13, "not allowed here")

        _native.SharedPeer = refuse  # type: ignore[assignment,misc]
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1) as recorder:
        try:
            recorder.attach(ddp, shared_memory=mode)  # type: ignore[arg-type]
        except ReductionError as error:
            return str(error)
        for step in range(3):
            ddp(batch(rank, step, torch.float32)).square().mean().backward()
        recorder.close()
        return str(_buckets_by_path(recorder.path))


def test_if_one_rank_cannot_share_then_none_does(tmp_path: Path) -> None:
    assert run_ranks(_one_cannot, 3, tmp_path, f"{tmp_path}/auto", "auto") == ["{False}"] * 3
    for text in run_ranks(_one_cannot, 3, tmp_path, f"{tmp_path}/require", "require"):
        assert "rank 1 of the group cannot use the memory of rank 0: not allowed here" in text


def _dies_meanwhile(rank: int, _: int, folder: str, seen_by_all: bool) -> tuple[str, float]:
    """Rank 1 ends after it has said where its memory is, and before it has opened that of the others."""
    at = Path(folder, "at")
    if rank == 0 and not seen_by_all:
        processes._machine = lambda: "elsewhere"
    if rank == 1:

        def end(name: str, process: int) -> Any:
            at.write_text(repr(time.monotonic()))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)

        _native.SharedPeer = end  # type: ignore[assignment,misc]
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1) as recorder:
        try:
            recorder.attach(ddp, shared_memory="auto")
        except ReductionError as error:
            return str(error), time.monotonic() - float(at.read_text())
    return "no error", 0.0


@pytest.mark.parametrize("seen_by_all", [True, False])
def test_a_rank_that_ends_while_it_is_set_up_is_named_soon(tmp_path: Path, seen_by_all: bool) -> None:
    answers = run_ranks(_dies_meanwhile, 3, tmp_path, str(tmp_path), seen_by_all, lost=frozenset({1}))
    for rank in (0, 2):
        text, seconds = answers[rank]
        assert "rank 1 (process " in text, text
        assert "has ended while shared memory was being set up" in text
        assert seconds < 2


def _waited_for(rank: int, ranks: int, folder: str) -> None:
    """Waits in another order than the sums', in two threads; whoever waits may sum what comes before."""
    shared, _ = shared_setup.share(dist.group.WORLD, "require")
    assert shared is not None
    number = 0
    for _ in range(40):
        buffers = [torch.full((count,), rank + 1.0) for count in (1, 70_000, 5, 400_000, 300)]
        works = []
        for buffer in buffers:
            works.append(added_up.begin(shared, buffer, number))
            number += 1
        with ThreadPoolExecutor(2) as threads:
            for done in threads.map(added_up.wait, reversed(works), timeout=60):
                assert done
        for buffer in buffers:
            assert bool((buffer == ranks * (ranks + 1) / 2).all())


@pytest.mark.parametrize("ranks", [2, 4])
def test_waits_in_any_order_and_by_several_threads(tmp_path: Path, ranks: int) -> None:
    run_ranks(_waited_for, ranks, tmp_path, str(tmp_path))
