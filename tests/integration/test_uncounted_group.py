"""Groups whose collectives torch does not count."""

import importlib
from pathlib import Path

import torch
import torch.distributed as dist
from support.ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

STEPS = 3


def _train(rank: int, _: int, folder: str) -> bool:
    """Whether recorded gradients are those of a group that torch counts for."""
    # It registers a backend of its own, after which a group with a backend for each device has no default one, which
    # would count. DDP's constructor imports it as well.
    importlib.import_module("torch._dynamo")
    uncounted = dist.new_group(backend="cpu:gloo")
    torch.manual_seed(3)
    first, second = nn.Linear(20, 5), nn.Linear(20, 5)
    second.load_state_dict(first.state_dict())
    recorded = DistributedDataParallel(first, process_group=uncounted)
    plain = DistributedDataParallel(second)
    same = True
    with pyddpdiag.Recorder(folder, capacity_mb=1, statistics_interval=1, sentinel="warn") as recorder:
        recorder.attach(recorded)
        for step in recorder.steps(range(STEPS)):
            batch = torch.randn(4, 20, generator=torch.Generator().manual_seed(10 * step + rank))
            for ddp in (recorded, plain):
                ddp.zero_grad()
                ddp(batch).square().mean().backward()
            same &= all(
                torch.equal(ours.grad, theirs.grad)
                for ours, theirs in zip(first.parameters(), second.parameters(), strict=True)
            )
    return same


def test_gradients_are_examined_in_a_group_that_torch_does_not_count_for(tmp_path: Path) -> None:
    assert run_ranks(_train, 2, tmp_path, str(tmp_path / "trace")) == [True, True]
    for rank in open_run(tmp_path / "trace").ranks:
        assert len(rank.of_kind(Kind.BUCKET)) == STEPS
        assert len(rank.of_kind(Kind.GRADIENT)) >= STEPS
