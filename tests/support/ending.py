"""A rank that ends in one of several ways, as a script: `python ending.py RANK WORLD FOLDER WAY`.

The recorder is never closed. Rank 1 ends as `WAY` says, after as many steps as rank 0, which waits for nothing then and
ends normally.
"""

import sys
import time
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

STEPS = 6


def train(rank: int, world_size: int, folder: str) -> pyddpdiag.Recorder:
    """Some steps, at whose end nothing is in flight."""
    dist.init_process_group(
        "gloo", init_method=Path(folder, "meeting").as_uri(), rank=rank, world_size=world_size
    )
    ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
    recorder = pyddpdiag.Recorder(Path(folder, "run"), capacity_mb=1)
    recorder.attach(ddp)
    for _ in range(STEPS):
        ddp(torch.ones(2, 8)).sum().backward()
    return recorder


def run(rank: int, world_size: int, folder: str, way: str) -> None:
    """One rank. The recorder is a local variable, gone at the end of the script unless an exception holds it."""
    recorder = train(rank, world_size, folder)
    if rank == 0:
        # A killed neighbour closes its connections: be gone from the group only after it.
        time.sleep(1)
        return
    if way == "killed":
        psutil.Process().kill()
    if way == "raised inside":
        with recorder:
            raise ValueError(f"of rank {recorder.rank}")
    if way == "raised":
        raise ValueError(f"of rank {recorder.rank}")
    assert way == "ended"
    try:
        raise ValueError("nobody shall know")
    except ValueError:
        return


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
