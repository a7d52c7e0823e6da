"""Ranks with different amounts of data: DDP's join() answers for those that are done.

Without join(), the rank with more batches would wait in its next all-reduce for the others until it times out.
Run: python examples/uneven.py [FOLDER]
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


def train(rank: int, meeting: str, trace: str) -> None:
    """Rank 0 has 4 batches, rank 1 has 7."""
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=60)
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5)))
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(1 + rank)
    batches = [torch.randn(16, 10, generator=data) for _ in range(4 + 3 * rank)]
    with pyddpdiag.Recorder(trace) as recorder:
        recorder.attach(ddp)
        # A rank that is done adds zeros. By default the sum is still divided by the number of all ranks; with
        # divide_by_initial_world_size=False by that of the ranks with data, which recorder.attach heeds, too.
        with ddp.join():
            for x in recorder.steps(batches):
                optimiser.zero_grad()
                (ddp(x) - x[:, :5].sin()).square().mean().backward()
                optimiser.step()
    # join() also gives every rank the weights of one that trained to the end.
    mine = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    others = [torch.empty_like(mine) for _ in range(WORLD_SIZE)]
    dist.all_gather(others, mine)
    if rank == 0:
        equal = all(torch.equal(mine, other) for other in others)
        print(f"weights are equal on all ranks: {equal}")
    print(f"rank {rank} trained {len(batches)} batches", flush=True)
    # It holds the group, whose end would wait for a worker that may wait for Python's lock: pytorch issue 56297.
    del ddp
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else time.strftime("runs/uneven-%Y%m%d-%H%M%S")
    with tempfile.TemporaryDirectory() as temporary:
        mp.spawn(train, (Path(temporary, "meeting").as_uri(), folder), nprocs=WORLD_SIZE)
    print(f"Where the time went: pyddpdiag report {folder}")
