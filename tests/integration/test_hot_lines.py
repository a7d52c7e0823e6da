"""Real trainings of two ranks in which a line outside the training step takes time: the report names it."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.ranks import ran_once
from support.watched_ways import record_each
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report

LAYERS, WIDTH, BATCH = 12, 48, 16
LEAST_STEPS, LEAST_S, LEAST_CPU_S, MOST_S = 48, 3.0, 2.0, 20.0
"""There are some 20 looks a second: however fast or busy the machine is, there must be enough of them."""
ROUND = 16  # steps from one agreement on the end to the next
RANKS = 2
WAYS = ("moving average", "check in forward of rank 1")


def update_averages(averages: list[nn.Module], net: nn.Module) -> None:
    with torch.no_grad():
        for average in averages:
            for kept, new in zip(average.parameters(), net.parameters(), strict=True):
                kept.mul_(0.999).add_(new, alpha=0.001)


def is_sorted(x: torch.Tensor) -> bool:
    ordered = True
    for _ in range(8):
        ordered &= bool((x.sort(stable=True)[0].diff() >= 0).all())
    return ordered


class Net(nn.Module):
    def __init__(self, checks: bool) -> None:
        super().__init__()
        self.checks = checks
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through all layers."""
        for layer in self.layers:
            x = layer(x).relu()
            if self.checks:
                is_sorted(x)
        return x


def batches(rank: int) -> Iterator[torch.Tensor]:
    """Of a loader each, until all ranks have had enough."""
    data = TensorDataset(torch.randn(RANKS * ROUND * BATCH, WIDTH))
    begun, computed, steps, over = time.monotonic(), time.thread_time(), 0, torch.zeros(1)
    while not over:
        for (x,) in DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data)):
            yield x
        steps += ROUND
        took, computes = time.monotonic() - begun, time.thread_time() - computed
        enough = steps >= LEAST_STEPS and took >= LEAST_S and computes >= LEAST_CPU_S
        over[0] = rank == 0 and (enough or took >= MOST_S)
        dist.broadcast(over, 0)


def train(way: str, rank: int) -> None:
    torch.manual_seed(3)
    net = Net(checks=way == "check in forward of rank 1" and rank == 1)
    averages = [copy.deepcopy(net) for _ in range(12)]
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for x in batches(rank):
        ddp(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if way == "moving average":
            update_averages(averages, net)


def _job(rank: int, _: int, folder: str) -> None:
    torch.set_num_threads(1)
    record_each(Path(folder), WAYS, rank, train)


trained = ran_once(_job, RANKS, answers=False)


def hot(folder: Path) -> list[Finding]:
    return [each for each in load_report(folder).verdict.findings if each.where]


@pytest.mark.parametrize(
    ("way", "function", "rank"),
    [("moving average", "update_averages", None), ("check in forward of rank 1", "is_sorted", 1)],
)
def test_the_line_is_named_once(trained: Path, way: str, function: str, rank: int | None) -> None:
    found = hot(trained / way)
    named = [each for each in found if each.where is not None and each.where.endswith(function)]
    assert [each.rank for each in named] == [rank], named
    assert not [each for each in found if each.kind == "hot_line" and each not in named], found
    # Other checks tell of it, too, where they see it: of a late rank, and of all while a busy machine slows them.
    assert named[0].kind in ("hot_line", "late_rank" if rank is not None else "slower_steps")
