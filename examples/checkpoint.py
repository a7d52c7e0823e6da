"""Saving and resuming under DDP: an interrupted run gives the losses of an uninterrupted one, bit for bit.

Rank 0 alone saves, atomically; a barrier keeps the others from loading what is not written yet; every rank loads to
its own device. Each of the three trainings is a run of its own in FOLDER: begun, resumed, whole.
Run: python examples/checkpoint.py [FOLDER]    then: pyddpdiag report FOLDER/whole
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

WORLD_SIZE = 2
STEPS = 12
SAVED_AT = 6


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes beside the file and renames: whoever reads sees the old state or the new one, never half of one."""
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def train(rank: int, meeting: str, first: int, last: int, checkpoint: str, losses: str, trace: str) -> None:
    """Trains the steps from `first` up to `last`; loads the checkpoint if `first` is not 0, saves at SAVED_AT."""
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=60)
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = torch.device(f"cuda:{rank}" if torch.cuda.device_count() >= WORLD_SIZE else "cpu")
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5)).to(device)
    ddp = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    if first:
        # map_location: a checkpoint remembers rank 0's device, and that is not everybody's.
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
    seen = []
    with pyddpdiag.Recorder(trace) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(first, last)):
            # The data of a step depend on step and rank alone, so it does not matter how we came here.
            data = torch.Generator().manual_seed(1000 * step + rank)
            x = torch.randn(16, 10, generator=data).to(device)
            optimiser.zero_grad()
            loss = (ddp(x) - x[:, :5].sin()).square().mean()
            loss.backward()
            optimiser.step()
            total = loss.detach().cpu()
            dist.all_reduce(total)
            seen.append((total / WORLD_SIZE).item())
            if step + 1 == SAVED_AT:
                if rank == 0:
                    save(Path(checkpoint), {"model": model.state_dict(), "optimiser": optimiser.state_dict()})
                dist.barrier()  # from here on, every rank may load it
    if rank == 0:
        Path(losses).write_text(json.dumps(seen), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def run(folder: Path, trace: Path, name: str, first: int, last: int) -> list[float]:
    """The losses of these steps, trained by fresh processes."""
    meeting, losses = folder / f"{name}.meeting", folder / f"{name}.json"
    rest = (first, last, str(folder / "checkpoint.pt"), str(losses), str(trace / name))
    mp.spawn(train, (meeting.as_uri(), *rest), nprocs=WORLD_SIZE)
    found: list[float] = json.loads(losses.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    trace = Path(sys.argv[1] if len(sys.argv) > 1 else time.strftime("runs/checkpoint-%Y%m%d-%H%M%S"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        begun = run(folder, trace, "begun", 0, SAVED_AT)
        resumed = begun + run(folder, trace, "resumed", SAVED_AT, STEPS)
        whole = run(folder, trace, "whole", 0, STEPS)
    for step, (one, two) in enumerate(zip(whole, resumed, strict=True)):
        print(f"step {step:2d}  uninterrupted {one:.9f}  interrupted at {SAVED_AT} {two:.9f}")
    print("the losses are equal to the last bit:", whole == resumed)
    print(f"Where the time went: pyddpdiag report {trace / 'whole'}")
