"""A model whose layers live on two devices, inside DDP: each rank holds one replica that spans both.

With at least two CUDA devices per rank the layers are on two of them. Otherwise both halves are on the CPU: torch
knows only one CPU device ("cpu:1" is "cpu"), so the code path is the same but nothing is computed in parallel.
Run: python examples/model_parallel.py [FOLDER]    then: pyddpdiag report FOLDER
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

WORLD_SIZE = 2
STEPS = 40


class TwoDevices(nn.Module):
    """The first layer on one device, the second on another: (n, 10) in, (n, 5) out on the second device."""

    def __init__(self, first: torch.device, second: torch.device) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.net1 = nn.Linear(10, 32).to(first)
        self.net2 = nn.Linear(32, 5).to(second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.net1(x.to(self.first)))
        return self.net2(hidden.to(self.second))


def devices(rank: int) -> tuple[torch.device, torch.device]:
    """The two devices of a rank."""
    if torch.cuda.device_count() >= 2 * WORLD_SIZE:
        return torch.device("cuda", 2 * rank), torch.device("cuda", 2 * rank + 1)
    return torch.device("cpu"), torch.device("cpu")


def train(rank: int, meeting: str, trace: str) -> None:
    """What each rank does; mp.spawn gives it its rank first."""
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=60)
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first, second = devices(rank)
    # No device_ids: DDP must leave the placing to the module.
    ddp = DistributedDataParallel(TwoDevices(first, second))
    if rank == 0:
        same = "; one and the same here, so nothing runs in parallel" if first == second else ""
        print(f"layer 1 on {first}, layer 2 on {second}{same}", flush=True)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    wanted = torch.randn(10, 5)
    data = torch.Generator().manual_seed(1 + rank)
    batches = [torch.randn(20, 10, generator=data) for _ in range(STEPS)]
    with pyddpdiag.Recorder(trace) as recorder:
        recorder.attach(ddp)
        for step, x in enumerate(recorder.steps(batches)):
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(ddp(x), (x @ wanted).to(second))
            loss.backward()
            optimiser.step()
            if rank == 0 and step in (0, STEPS - 1):
                print(f"step {step:2d}  loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else time.strftime("runs/model-parallel-%Y%m%d-%H%M%S")
    with tempfile.TemporaryDirectory() as temporary:
        mp.spawn(train, (Path(temporary, "meeting").as_uri(), folder), nprocs=WORLD_SIZE)
    print(f"Where the time went: pyddpdiag report {folder}")
