"""Real trainings whose findings have a line: of the collectives that hold up the steps, and of what failed."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.ranks import ran_once
from support.reported import findings
from support.watched_ways import record_each
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.pipeline import load_report

TIMEOUT_S = 4.0


def share_outputs(result: torch.Tensor) -> None:
    """Far more than the gradients are."""
    shared = [torch.empty_like(result) for _ in range(dist.get_world_size())]
    dist.all_gather(shared, result)


def sort_samples(rank: int) -> None:
    """Rank 0 does so for longer than the others wait."""
    if rank == 0:
        time.sleep(2 * TIMEOUT_S)


def _gather(rank: int) -> None:
    torch.manual_seed(rank)
    ddp = DistributedDataParallel(nn.Linear(32, 32))
    for _ in range(100):
        ddp(torch.randn(8, 32)).pow(2).mean().backward()
        ddp.zero_grad()
        share_outputs(torch.ones(1 << 21))


def _fail(rank: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=TIMEOUT_S))
    ddp = DistributedDataParallel(nn.Linear(32, 32), process_group=group)
    for step in range(40):
        if step == 30:
            sort_samples(rank)
        ddp(torch.randn(8, 32)).pow(2).mean().backward()


def _train(way: str, rank: int) -> None:
    if way == "gathers":
        _gather(rank)
    else:
        with pytest.raises(RuntimeError):
            _fail(rank)


def _job(rank: int, _: int, folder: str) -> None:
    record_each(Path(folder), ("gathers", "fails"), rank, _train)


trained = ran_once(_job, 2, answers=False)


def test_collectives_that_hold_up_the_steps_have_a_line(trained: Path) -> None:
    (found,) = findings(trained / "gathers", "other_collectives")
    assert found.where is not None and found.where.endswith("in share_outputs")


def test_a_rank_that_came_only_after_the_others_timeout_is_named_with_its_line(trained: Path) -> None:
    first = load_report(trained / "fails").verdict.findings[0]
    assert (first.kind, first.rank, first.evidence["reached"]) == ("operation_failed", 0, 1), first
    assert first.where is not None and first.where.endswith("in sort_samples")
