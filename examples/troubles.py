"""One kind of trouble by name, on two ranks; docs/gallery.md shows what pyddpdiag says of each.

Run: pyddpdiag run torchrun --nproc-per-node 2 examples/troubles.py slow_rank [--cured]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BATCH = 16
TROUBLES = (
    "slow_rank",
    "slow_data",
    "loopback",
    "accumulation",
    "lone_checkpoint",
    "moving_average",
    "same_data",
    "nan",
    "uneven_data",
)


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random samples of 64 numbers, and the sine of their first ten to learn."""

    def __init__(self, number: int, read_s: float) -> None:
        self.x = torch.randn(number, 64, generator=torch.Generator().manual_seed(7))
        self.read_s = read_s

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.read_s:
            time.sleep(self.read_s)  # a small file each, on a disk far away
        return self.x[at], self.x[at, :10].sin()


def load_labels() -> None:
    """A file on a slow disk, say."""
    time.sleep(0.05)


def update_average(average: nn.Module, model: nn.Module, cured: bool) -> None:
    """A moving average of the weights: by rows, or in one call for all of them."""
    with torch.no_grad():
        if cured:
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)
            return
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            for row in range(len(mine)):
                mine[row].lerp_(theirs[row], 0.01)


def save(ddp: DistributedDataParallel, took_s: float) -> None:
    """A checkpoint, on a disk that takes its time."""
    torch.save(ddp.state_dict(), Path(tempfile.gettempdir(), "troubles.pt"))
    time.sleep(took_s)


def train(trouble: str, cured: bool, steps: int) -> None:
    """Trains in the process group that is up: with the trouble, or without it."""
    rank, wrong = dist.get_rank(), not cured
    torch.manual_seed(0)
    wide = 1536 if trouble in ("loopback", "accumulation") else 256
    model = nn.Sequential(
        nn.Linear(64, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10)
    )
    average = copy.deepcopy(model)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    samples = Samples(2 * BATCH * steps, 0.003 if trouble == "slow_data" else 0.0)
    sampler = None if trouble == "same_data" and wrong else DistributedSampler(samples)
    loader = DataLoader(
        samples, BATCH, sampler=sampler, num_workers=2 if trouble == "slow_data" and cured else 0
    )
    for step, (x, y) in enumerate(loader):
        if step == steps or (trouble == "uneven_data" and wrong and rank == 1 and step == steps // 2):
            break
        if trouble == "slow_rank" and wrong and rank == 1:
            load_labels()
        if trouble == "nan" and wrong and rank == 1 and step == 50:
            x[0] = float("nan")
        apart = trouble == "accumulation" and cured and step % 4 < 3
        with ddp.no_sync() if apart else contextlib.nullcontext():
            loss = nn.functional.mse_loss(ddp(x), y)
            loss.backward()
        if trouble == "accumulation" and step % 4 < 3:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if trouble == "moving_average":
            update_average(average, model, cured)
        if trouble == "lone_checkpoint" and step % 20 == 19:
            if rank == 0:
                save(ddp, 0.5 if wrong else 0.0)
            dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("trouble", choices=TROUBLES)
    parser.add_argument("--cured", action="store_true", help="the same without the mistake")
    parser.add_argument("--steps", type=int, default=120)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    train(asked.trouble, asked.cured, asked.steps)
    dist.destroy_process_group()
