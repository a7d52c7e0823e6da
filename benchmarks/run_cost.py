"""What each reading costs a step, alone and all together: `python benchmarks/run_cost.py [ROUNDS] [RANKS] [WIDTH ...]`.

In living ranks, one reading after the other in random order within each round, between plain steps: a recorder of its
own each time, in whose steps nothing is written down that a longer run does not write (the sidecar's writes have a
line of their own). "run" is all that `pyddpdiag run` turns on. Differences to the plain steps of the same round, of
rank 0: of the main thread's and of the process's processor time, and the median step's ratio; medians with their
intervals.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from harness.ranks import run
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, TensorDataset, dataloader

import pyddpdiag
from pyddpdiag.bench.intervals import shuffled
from pyddpdiag.integrations import unchanged
from pyddpdiag.integrations.watched import Watched
from pyddpdiag.ranks.session import Session
from pyddpdiag.record import attachments, ddp_modules, recorder, training

ROUNDS = 20
# Width of four layers, their batch, and the steps of a block.
SIZES = {96: (32, 46), 256: (48, 46), 512: (80, 32), 1024: (160, 16)}
OPERATIONS = 20_000  # of torch that a new recorder looks at, to learn which worker serves which group
# What is read more often at first is read as rarely as ever after 256 passes. Of later ones, the first 16 of each 128
# are looked at as they begin: of a block it is as many, its last ones. No power of 4 is among its steps, at which the
# sidecar is written.
LOOKED_AT = 383

OFF = {"parameter_interval": 0, "statistics_interval": 0, "weights_interval": 0, "sample_connections": False}
OFF["lines"] = False
PYTHON = {
    "optimizers": (training, "Optimizers"),
    "garbage collector": (recorder, "CollectorWatch"),
    "marks of passes and batches": (ddp_modules, "ForwardMarks"),
    "whereabouts": (recorder, "Whereabouts"),
}
READINGS: dict[str, dict[str, Any]] = {
    "plain again": {},
    "buckets": OFF,
    "weights": {**OFF, "weights_interval": 16},
    "statistics": {**OFF, "statistics_interval": 16},
    "parameters": {**OFF, "parameter_interval": 16},
    "connections": {**OFF, "sample_connections": True},
    "looks and memory": {**OFF, "lines": True},
    **dict.fromkeys(PYTHON, OFF),
    "steps of the loop": OFF,
    "run --no-lines": {"lines": False},
    "run": {},
}
WHOLE = ("run", "run --no-lines")


class Nothing:
    """In place of a reading."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., tuple[()]]:
        return lambda *_, **__: ()


@contextmanager
def patched() -> Iterator[None]:
    """What is replaced in torch meanwhile comes back, as if no `pyddpdiag run` were there."""
    owners: list[Any] = [sys.modules[name] for name in unchanged._PATCHES if name in sys.modules]
    owners += [DistributedDataParallel, dataloader.DataLoader, dataloader._BaseDataLoaderIter, torch, dist]
    before = [(owner, dict(vars(owner))) for owner in owners]
    hooks: list[dict[int, Any]] = [
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    ]
    known = [dict(each) for each in hooks]
    try:
        yield
    finally:
        for owner, had in before:
            for name in [name for name, value in vars(owner).items() if had.get(name, had) is not value]:
                setattr(owner, name, had[name]) if name in had else delattr(owner, name)
        for each, had in zip(hooks, known, strict=True):
            each.clear()
            each.update(had)
        unchanged._state = unchanged._State()


@contextmanager
def reading(name: str, folder: str, ddp: DistributedDataParallel) -> Iterator[None]:
    """Steps within it are read so."""
    options, steps = READINGS.get(name, {}), name in ("steps of the loop", *WHOLE)
    if name in ("plain", "plain again"):
        yield
        return
    with ExitStack() as stack:
        for other, place in PYTHON.items():
            if name not in (other, *WHOLE):
                stack.enter_context(mock.patch.object(*place, Nothing))
        if steps:
            stack.enter_context(patched())
            unchanged.watch(watched := Watched(folder, options))
            watched.made_module(ddp)
            yield
            assert watched.session is not None
            attachments.detach(watched.session.recorder, ddp)
            watched.session.close()
        else:
            one = stack.enter_context(pyddpdiag.Recorder(folder, **options))
            one.attach(ddp)
            yield
            one.detach(ddp)


def measure(session: Session, folder: str, rounds: int, widths: list[int]) -> list[dict[str, Steps]]:
    """For each size and reading the steps of each round."""
    del session
    torch.manual_seed(0)
    gc.collect()
    order, found = random.Random(0), []
    for width in widths:
        batch, count = SIZES[width]
        before = LOOKED_AT + count // 8 - count
        ddp = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-6, momentum=0.9)
        loader = DataLoader(TensorDataset(torch.randn(batch * (before + count), width)), batch_size=batch)
        found.append({name: Steps([], [], []) for name in ("plain", *READINGS)})
        for turn in range(rounds):
            for name in shuffled(list(found[-1]), order):
                with reading(name, f"{folder}/{width}-{turn}-{name}", ddp):
                    given = iter(loader)
                    thread, clock = [], []
                    for step in range(before + count):
                        if step == 2:
                            one = torch.ones(1)
                            for _ in range(OPERATIONS):
                                one.add_(1)
                        if step in (2, before):
                            # Of a line that is known by then: of a new one, the sidecar is written.
                            dist.barrier()
                            used = time.process_time() - time.thread_time()
                        begin, begin_s = time.thread_time(), time.perf_counter()
                        (inputs,) = next(given)
                        optimizer.zero_grad()
                        ddp(inputs).square().mean().backward()
                        optimizer.step()
                        thread.append(time.thread_time() - begin)
                        clock.append(time.perf_counter() - begin_s)
                    used = time.process_time() - time.thread_time() - used
                found[-1][name].thread.append(thread[before:])
                found[-1][name].clock.append(clock[before:])
                found[-1][name].others.append(used / count)
                dist.barrier()  # all have closed it
                shutil.rmtree(f"{folder}/{width}-{turn}-{name}", ignore_errors=True)
    return found


@dataclass(frozen=True)
class Steps:
    """Of one reading, by rounds: of each step the main thread's processor time and the time by the clock; and the
    mean processor time of all other threads. Seconds."""

    thread: list[list[float]]
    clock: list[list[float]]
    others: list[float]

    def of(self, picked: Any) -> dict[str, float]:
        """What a step takes in these rounds. On a busy machine other processes' use of the caches is most of what
        differs: of each step the lower quartile over the rounds, and of these the mean."""
        quiet = [
            np.quantile(np.asarray(each)[picked], 0.25, axis=0).mean() for each in (self.thread, self.clock)
        ]
        return {
            "thread": quiet[0],
            "process": quiet[0] + np.median(np.asarray(self.others)[picked]),
            "step": quiet[1],
        }


def main(rounds: int, ranks: int, widths: list[int]) -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        found = run(measure, ranks, folder, rounds, widths)
    print(f"load {os.getloadavg()[0]:.0f}, {ranks} ranks, {rounds} rounds")
    picks = [np.arange(rounds), *np.random.default_rng(0).integers(0, rounds, (300, rounds))]
    for by, width in zip(found, widths, strict=True):
        plain = [by["plain"].of(each) for each in picks]
        print(
            f"{16 * width * (width + 1) / 1e6:.1f} MB; plain: "
            + ", ".join(f"{k} {1e3 * v:.2f} ms" for k, v in plain[0].items())
        )
        for name in READINGS:
            cells = []
            for clock in plain[0]:
                more = np.array(
                    [by[name].of(p)[clock] - one[clock] for p, one in zip(picks, plain, strict=True)]
                )
                low, high = np.quantile(more[1:], [0.025, 0.975])
                share = 1 + more[0] / plain[0][clock]
                cells.append(
                    f"{clock} {1e6 * more[0]:5.0f} us [{1e6 * low:.0f}, {1e6 * high:.0f}] {share:.3f}"
                )
            print(f"  {name:28}" + "   ".join(cells))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else ROUNDS,
        int(given[1]) if len(given) > 1 else 1,
        [int(each) for each in given[2:]] or list(SIZES),
    )
