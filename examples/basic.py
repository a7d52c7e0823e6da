"""Two ranks train a network of two layers with DistributedDataParallel, with the probes on.

Run: python examples/basic.py [FOLDER]    then: pyddpdiag report FOLDER
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
STEPS = 60


class TwoLayers(nn.Module):
    """Two linear layers with a ReLU between them: (n, 10) in, (n, 5) out."""

    def __init__(self) -> None:
        super().__init__()
        self.net1 = nn.Linear(10, 32)
        self.net2 = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(torch.relu(self.net1(x)))


def train(rank: int, meeting: str, trace: str) -> None:
    """What each rank does; mp.spawn gives it its rank first."""
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=60)
    )
    torch.set_num_threads(1)  # the ranks share one machine
    torch.manual_seed(0)
    ddp = DistributedDataParallel(TwoLayers())
    with pyddpdiag.Recorder(trace) as recorder:
        recorder.attach(ddp)
        optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
        # The same function to learn on every rank, from other samples.
        wanted = torch.randn(10, 5)
        samples = torch.Generator().manual_seed(1 + rank)
        batches = [torch.randn(20, 10, generator=samples) for _ in range(STEPS)]
        for step, x in enumerate(recorder.steps(batches)):
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(ddp(x), x @ wanted)
            loss.backward()
            optimiser.step()
            if rank == 0 and step % 20 in (0, 19):
                print(f"step {step:2d}  loss {loss.item():.3f}", flush=True)

    # DDP's promise: after the same averaged gradients the weights are the same everywhere.
    mine = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    others = [torch.empty_like(mine) for _ in range(WORLD_SIZE)]
    dist.all_gather(others, mine)
    if rank == 0:
        equal = all(torch.equal(mine, other) for other in others)
        print(f"weights are equal on all ranks: {equal}")
    # It holds the group, whose end would wait for a worker that may wait for Python's lock: pytorch issue 56297.
    del ddp
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else time.strftime("runs/basic-%Y%m%d-%H%M%S")
    with tempfile.TemporaryDirectory() as temporary:
        mp.spawn(train, (Path(temporary, "meeting").as_uri(), folder), nprocs=WORLD_SIZE)
    print(f"Where the time went: pyddpdiag report {folder}")
