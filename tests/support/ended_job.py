"""A training script that knows nothing of pyddpdiag and comes to a bad end.

Under torchrun: `ended_job.py evaluates`. With ranks that it spawns itself: `ended_job.py WAY FOLDER`.
"""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

AT = 6
TIMEOUT_S = 4
LONG_S = 300
LABELS: dict[str, int] = {}


def train(steps: int, before: Callable[[int], None]) -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(32, 32))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        ddp(torch.ones(4, 32)).square().mean().backward()
        optimizer.step()


def evaluate() -> None:
    time.sleep(LONG_S)  # the line that the report names


def evaluates() -> None:
    """Rank 0 needs longer for its evaluation than the others wait."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))

    def before(step: int) -> None:
        if step == AT and dist.get_rank() == 0:
            evaluate()

    train(2 * AT, before)


def spawned(rank: int, world_size: int, way: str, folder: str) -> None:
    meeting = Path(folder, "meeting").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)

    def before(step: int) -> None:
        if way == "interrupted":
            time.sleep(0.02)
        if step != AT:
            return
        if way == "fails" and rank == 1:
            LABELS["label_17"] += 1  # the line that fails
        if way == "fails":
            time.sleep(LONG_S)
        if way == "aborts" and rank == 0:
            dist.all_reduce(torch.ones(1))  # the call that one rank makes alone

    train(100_000 if way == "interrupted" else 2 * AT, before)


def uncalled(folder: str) -> None:
    """Trains the module within, whose gradients nobody reduces."""
    dist.init_process_group(
        "gloo", init_method=Path(folder, "meeting").absolute().as_uri(), rank=0, world_size=1
    )
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
    ddp.module(torch.ones(1, 4)).sum().backward()


def line_of(comment: str) -> str:
    """Where a line of this file is, as a report says it."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (at for at, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))
    return f"{Path(__file__).name}:{number}"


def main(way: str, *rest: Any) -> None:
    torch.set_num_threads(1)
    if way == "evaluates":
        evaluates()
    elif way == "uncalled":
        uncalled(*rest)
    else:
        world_size = 3 if way == "fails" else 2
        mp.spawn(spawned, (world_size, way, *rest), world_size)


if __name__ == "__main__":
    main(*sys.argv[1:])
