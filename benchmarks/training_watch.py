"""What it costs to fingerprint weights and to watch optimizers: `python benchmarks/training_watch.py`.

Each figure is the median of 10 rounds, with and without in turns, by the thread's own clock. One process; no other rank
is needed for it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.record.optimizers import LOOK_INTERVAL

ROUNDS, STEPS, INTERVAL = 10, 4, 16
LOOKS: Final = 2  # at all parameters, in the steps of a round


def main() -> None:
    """Prints a table for models of two sizes."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        for layers, width in ((40, 395), (160, 8), (5000, 8)):
            model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
            _measure(model, f"{folder}/{layers}", torch.randn(16, width))
        dist.destroy_process_group()


def _measure(model: nn.Module, folder: str, batch: torch.Tensor) -> None:
    parameters = list(model.parameters())
    amount = sum(one.nbytes for one in parameters) / 1e6
    marks = _us(lambda: _native.weight_marks(parameters)) / INTERVAL
    ddp = DistributedDataParallel(model)
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-9)
        ddp(batch).sum().backward()
        whole = _us(lambda: ddp(batch).sum().backward())
        watched, plain = [], []
        for _ in range(ROUNDS):
            watched.append(_us(optimizer.step, 1, LOOKS * LOOK_INTERVAL))
            recorder.pause()
            plain.append(_us(optimizer.step, 1, LOOKS * LOOK_INTERVAL))
            recorder.resume()
    watch = statistics.median(one - other for one, other in zip(watched, plain, strict=True))
    print(
        f"{amount:.1f} MB in {len(parameters)} parameters, forward and backward {whole:.0f} us: weights {marks:.1f} us "
        f"per pass, optimizer {watch:.1f} us per step"
    )


def _us(run: Callable[[], object], rounds: int = ROUNDS, calls: int = STEPS) -> float:
    """The median of the mean time of so many calls."""
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(calls):
            run()
        times.append((time.thread_time() - begin) / calls * 1e6)
    return statistics.median(times)


if __name__ == "__main__":
    main()
