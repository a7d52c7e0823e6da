"""Two ranks that torch.compile holds up now and then: the report names it, and not larger inputs."""

import random
from pathlib import Path

import torch
from support.ranks import ran_once
from support.reported import findings
from support.watched_ways import record_each
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH, USUAL = 60, 256, 64
WAYS = ("new shapes", "long inputs")


def train(way: str, rank: int) -> None:
    torch._dynamo.reset()  # type: ignore[no-untyped-call]
    torch.manual_seed(rank)
    turns = random.Random(5)
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(6))
    net: nn.Module = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    if way == "new shapes":
        net = torch.compile(net, dynamic=False, backend="eager")
    new = iter(range(USUAL + 1, 10_000))
    for step in range(STEPS):
        size = USUAL
        if step > 4 and turns.random() < 0.25:
            size = next(new) if way == "new shapes" else 12 * USUAL
        optimizer.zero_grad()
        loss = net(torch.randn(size, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()


def _job(rank: int, _: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch._dynamo.config.cache_size_limit = STEPS
    record_each(Path(folder), WAYS, rank, train)


trained = ran_once(_job, 2, answers=False)


def test_compiling_again_is_named_with_the_line_and_what_to_do(trained: Path) -> None:
    (found,) = findings(trained / "new shapes", "pause")
    assert found.where is not None and "test_recompiles.py" in found.where
    assert "(torch.compile)" in found.message and "in no rhythm" in found.message
    assert "mark_dynamic" in found.advice


def test_longer_inputs_now_and_then_are_no_pause(trained: Path) -> None:
    assert not findings(trained / "long inputs", "pause")
