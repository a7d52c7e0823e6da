"""The ranks set up the exchange of 16-bit buckets: one fails or is late, and they do it again."""

import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import ReductionError
from pyddpdiag.paths import beside, exchange_setup

GROUP_TIMEOUT_S = 12.0
FEATURES = 301  # one bucket above 128 KiB in 16 bits, from where on three ranks exchange by messages


class _FailsOnce:
    """In place of ProcessGroupGloo: this rank has no address left, say, when the group is made first."""

    def __init__(self) -> None:
        self._real: Any = dist.ProcessGroupGloo
        self._Options = self._real._Options
        self.failed = False

    def __call__(self, *arguments: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise RuntimeError("address already in use")
        return self._real(*arguments)


def _attach(recorder: pyddpdiag.Recorder, ddp: DistributedDataParallel) -> str:
    try:
        recorder.attach(ddp, compress="bf16")
    except ReductionError as error:
        return str(error)
    return ""


def _average(ddp: DistributedDataParallel, rank: int) -> tuple[bool, bytes]:
    """Whether the gradients are the exchange's to the last bit, and the gradients."""
    x = torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(rank))
    parameters = list(ddp.module.parameters())
    own = torch.autograd.grad(ddp.module(x).square().mean(), parameters)
    wire = (torch.cat([g.flatten() for g in own]) / dist.get_world_size()).bfloat16()
    everyone = [torch.empty_like(wire) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, wire)
    total = everyone[0].float()
    for one in everyone[1:]:
        total += one.float()
    ddp(x).square().mean().backward()
    ours = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    return torch.equal(ours, total.bfloat16().float()), ours.numpy().tobytes()


def _job(rank: int, world_size: int, folder: str, fails: str) -> tuple[list[str], bool, bytes]:
    group = dist.new_group(list(range(world_size)), timeout=timedelta(seconds=GROUP_TIMEOUT_S))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(*pair) for pair in itertools.pairwise([FEATURES] * 3)])
    ddp = DistributedDataParallel(model, process_group=group)
    last = rank == world_size - 1
    if fails != "coming" and last:
        exchange_setup.dist.ProcessGroupGloo = _FailsOnce()  # type: ignore[misc, assignment]
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        errors = []
        if fails != "coming" or not last:
            errors.append(_attach(recorder, ddp))
        if fails != "making the group, early back":
            dist.barrier()
        elif last:
            # Again here while the others still wait for its first address.
            time.sleep(GROUP_TIMEOUT_S / 2)
        # A rank that looks only after the last one has failed meets it when that is back: nothing failed for it.
        met_at_once = fails == "making the group, early back" and not last and errors == [""]
        errors.append("" if met_at_once else _attach(recorder, ddp))
        same, gradients = _average(ddp, rank)
    return errors, same, gradients


@pytest.mark.parametrize("fails", ["coming", "making the group", "making the group, early back"])
def test_a_failure_leaves_nothing_behind(tmp_path: Path, fails: str) -> None:
    answers = run_ranks(_job, 3, tmp_path, str(tmp_path / "run"), fails)
    for rank, (errors, same, gradients) in enumerate(answers):
        *first, second = errors
        assert second == "", rank
        assert len(first) == (0 if fails == "coming" and rank == 2 else 1)
        for error in first:
            if fails == "making the group, early back" and rank < 2 and not error:
                continue
            assert f"rank {rank}: cannot reach the other ranks to set up 16-bit gradients" in error
            assert "hint: compress on all ranks or on none" in error
        assert same, rank
        assert gradients == answers[0][2], rank


def _twice_job(rank: int, world_size: int, folder: str) -> list[tuple[bool, bytes]]:
    seen = []
    for name in ("one", "two"):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(FEATURES, FEATURES)))
        with pyddpdiag.Recorder(Path(folder, name), capacity_mb=1) as recorder:
            recorder.attach(ddp, compress="bf16")
            seen.append(_average(ddp, rank))
    return seen


def test_each_recorder_of_a_group_has_its_own(tmp_path: Path) -> None:
    answers = run_ranks(_twice_job, 3, tmp_path, str(tmp_path))
    for answer in answers:
        assert answer == answers[0]
        assert [same for same, _ in answer] == [True, True]


def _called(job: Callable[[], object]) -> str:
    try:
        job()
    except RuntimeError as error:
        return str(error)
    return ""


def _gone_job(rank: int, world_size: int, folder: str) -> str:
    ddp = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(FEATURES, FEATURES)))
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp, compress="bf16")
        # What nobody should do, and what only the recorder of a group that is gone would see.
        beside._held.clear()
        return _called(lambda: _average(ddp, rank))


def test_messages_without_their_group_are_an_error(tmp_path: Path) -> None:
    for error in run_ranks(_gone_job, 3, tmp_path, str(tmp_path)):
        assert "the process group for messages between the ranks was destroyed" in error
        assert "while reducing bucket 0" in error
