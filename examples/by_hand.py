"""Data parallelism without DDP: partition the data, average all gradients over the ranks, step.

Two ranks with half of each batch learn the same as one process with the whole batch, with `pyddpdiag.GradientReducer`,
which averages in buckets while the backward pass still runs, and with a plain all-reduce for each gradient after it:
shorter to write, and slower. The recorder times the all-reduces of both. Run: python examples/by_hand.py [FOLDER]
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

import pyddpdiag

WORLD_SIZE = 2
STEPS = 30
BATCH = 32


def average_gradients(model: nn.Module) -> None:
    """Every gradient becomes the mean over the ranks: all that is needed, one all-reduce per parameter."""
    waiting = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= WORLD_SIZE
            waiting.append(dist.all_reduce(parameter.grad, async_op=True))
    for work in waiting:
        work.wait()


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """How far the model is from the sine of its inputs."""
    return (model(x) - x[:, :5].sin()).square().mean()


def train(rank: int, meeting: str, trace: str) -> None:
    """What each rank does."""
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=60)
    )
    torch.set_num_threads(1)
    models = []
    for _ in ("in buckets", "one by one", "alone"):
        torch.manual_seed(0)  # equal first weights: nobody broadcasts them here
        models.append(nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 5)))
    bucketed, one_by_one, alone = models
    optimisers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    data = torch.Generator().manual_seed(7)
    batches = [torch.randn(BATCH, 10, generator=data) for _ in range(STEPS)]
    with (
        pyddpdiag.Recorder(trace) as recorder,
        pyddpdiag.GradientReducer(bucketed.named_parameters(), recorder=recorder) as reducer,
    ):
        for step, batch in enumerate(recorder.steps(batches)):
            for optimiser in optimisers:
                optimiser.zero_grad()
            mine = batch[rank::WORLD_SIZE]

            loss_of(bucketed, mine).backward()
            reducer.all_reduce()

            loss_of(one_by_one, mine).backward()
            average_gradients(one_by_one)

            whole = loss_of(alone, batch)
            whole.backward()
            for optimiser in optimisers:
                optimiser.step()
            if rank == 0 and step in (0, STEPS - 1):
                print(f"step {step:2d}  loss {whole.item():.4f}", flush=True)
    if rank == 0:
        for name, model in (("GradientReducer", bucketed), ("plain all-reduce", one_by_one)):
            pairs = zip(model.parameters(), alone.parameters(), strict=True)
            apart = max((a - b).abs().max().item() for a, b in pairs)
            print(f"{name}: {WORLD_SIZE} ranks and one process differ by at most {apart:.1e} in any weight")
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else time.strftime("runs/by-hand-%Y%m%d-%H%M%S")
    with tempfile.TemporaryDirectory() as temporary:
        mp.spawn(train, (Path(temporary, "meeting").as_uri(), folder), nprocs=WORLD_SIZE)
    print(f"Where the time went: pyddpdiag report {folder}")
