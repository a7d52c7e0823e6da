"""Real trainings in which rank 0 does something alone now and then while the others really wait."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.ranks import ran_once
from support.watched_ways import record_each
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.pipeline import load_report

STEPS, WARM = 330, 10
WAYS = ("checkpoint", "evaluation", "every rank")


def write_checkpoint(busy: Callable[[], bool]) -> None:
    while busy():
        time.sleep(0.002)


def evaluate(net: nn.Module, busy: Callable[[], bool]) -> None:
    with torch.no_grad():
        while busy():
            net(torch.randn(64, 128))


def _train(way: str, rank: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(128, 128) for _ in range(4)))
    ddp = DistributedDataParallel(net)
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    # Who computes alone on a busy machine has a core for a part of that time: so much computing, however long it takes.
    clock = time.monotonic if way == "checkpoint" else time.thread_time
    began, alone_s = time.monotonic(), 0.0
    for step in range(STEPS):
        optimizer.zero_grad()
        ddp(torch.randn(32, 128)).pow(2).mean().backward()
        optimizer.step()
        if step == WARM:
            # So many steps by the clock: a share of the run is found, on a busy machine too. No longer than what any
            # rank of one may lose once, but for enough looks at it.
            alone_s = max(0.08, 8 * (time.monotonic() - began) / WARM)
        if step > WARM and step % 20 == 0 and (rank == 0 or way == "every rank"):
            until = clock() + alone_s

            def busy(until: float = until) -> bool:
                return clock() < until

            if way == "checkpoint":
                write_checkpoint(busy)
            else:
                evaluate(net, busy)
        if way == "checkpoint" and step % 20 == 0:
            dist.barrier()


def _job(rank: int, _: int, folder: str) -> None:
    record_each(Path(folder), WAYS, rank, _train)


trained = ran_once(_job, 2, answers=False)


@pytest.mark.parametrize("way, function", [("checkpoint", "write_checkpoint"), ("evaluation", "evaluate")])
def test_what_a_rank_does_while_the_others_wait_is_charged_to_it(
    trained: Path, way: str, function: str
) -> None:
    report = load_report(trained / way)
    (found,) = [one for one in report.verdict.findings if one.kind == "rank_alone"]
    assert (found.rank, found.severity, found.confidence) == (0, "warning", "high")
    # Each time for about that long: the others have a pass of their own to do before they wait.
    assert found.cost_s is not None and found.cost_s >= 0.9 * 0.08 * int(found.evidence["times"] or 0)
    assert found.where is not None and found.where.endswith(f"in {function}")


def test_what_every_rank_does_is_not(trained: Path) -> None:
    found = load_report(trained / "every rank").verdict.findings
    assert "rank_alone" not in [one.kind for one in found]
