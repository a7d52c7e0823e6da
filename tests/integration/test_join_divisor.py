"""DDP's join(divide_by_initial_world_size=False): the sum is divided by the ranks that still have data."""

from pathlib import Path
from typing import Any

import torch
from support.hooked import backward
from support.models import branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

RANKS = 4


def _trained(rank: int, recorder: pyddpdiag.Recorder, way: str) -> torch.Tensor:
    """The weights in the end; rank r has 1 + r batches, so that the divisor goes from 4 to 1."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    if way == "timed":
        ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
    elif way != "plain":
        options: dict[str, Any] = {
            "native": {},
            "shared": {"shared_memory": "auto"},
            "bf16": {"compress": "bf16"},
        }
        recorder.attach(ddp, **options[way])
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with ddp.join(divide_by_initial_world_size=False):
        for step in range(1 + rank):
            optimizer.zero_grad()
            backward(ddp, rank, step)
            optimizer.step()
    return torch.cat([p.detach().flatten() for p in ddp.parameters()])


def _job(rank: int, _: int, folder: str) -> dict[str, float]:
    """How far the weights are from those without a hook; -1 if they are the same to the bit."""
    apart = {}
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        plain = _trained(rank, recorder, "plain")
        for way in ("native", "timed", "shared", "bf16"):
            found = _trained(rank, recorder, way)
            apart[way] = -1.0 if torch.equal(found, plain) else float((found - plain).abs().max())
    return apart


def test_it_divides_as_without_a_hook(tmp_path: Path) -> None:
    for apart in run_ranks(_job, RANKS, tmp_path, str(tmp_path / "trace"), timeout_s=240):
        assert apart["native"] == apart["timed"] == -1.0
        # These divide by all ranks, and what they get is scaled before.
        assert apart["shared"] < 1e-6
        assert apart["bf16"] < 1e-2
