"""A script for torchrun, which starts one process per rank and tells each of them its place by the environment.

Run: torchrun --nproc-per-node 2 examples/torchrun.py [FOLDER]    (several machines: docs/several-machines.md)
Started plainly, it is a world of one.

On Windows torchrun works only if it meets over a file: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, and add
--rdzv-backend c10d --rdzv-endpoint D:/rdzv --rdzv-conf store_type=file --rdzv-id ID, with a new ID for each run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

STEPS = 30


def train(folder: str | None) -> None:
    """Trains in the process group that is up."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5)))
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(1 + rank)
    batches = [torch.randn(16, 10, generator=data) for _ in range(STEPS)]
    # Without a folder, the ranks agree on a new one.
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        for step, x in enumerate(recorder.steps(batches)):
            optimiser.zero_grad()
            loss = (ddp(x) - x[:, :5].sin()).square().mean()
            loss.backward()
            optimiser.step()
            if rank == 0 and step in (0, STEPS - 1):
                print(f"step {step:2d}  loss {loss.item():.4f}", flush=True)
    print(f"rank {rank} of {world_size} wrote {recorder.path}", flush=True)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    limit = timedelta(seconds=60)
    if "RANK" in os.environ:
        dist.init_process_group("gloo", timeout=limit)
        train(folder)
        dist.destroy_process_group()
    else:
        print(
            f"One rank only. Two need a launcher: torchrun --nproc-per-node 2 {sys.argv[0]} [FOLDER]",
            flush=True,
        )
        with tempfile.TemporaryDirectory() as temporary:
            meeting = Path(temporary, "meeting").as_uri()
            dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1, timeout=limit)
            train(folder)
            dist.destroy_process_group()
