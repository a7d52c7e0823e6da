"""Which passes are taken for training in a loop that knows nothing of pyddpdiag."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from support.ranks import ran_once
from support.watched_ways import record_each
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from pyddpdiag.trace.layout import Flag, Kind, StepTime
from pyddpdiag.trace.reader import read_trace

STEPS = 20
BETWEEN_S = 0.02


class _Loop:
    """One DDP module and its optimizer, with batches of a loader or without."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.ddp = DistributedDataParallel(nn.Linear(4, 2))
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.1)

    def batches(self, number: int) -> Iterator[torch.Tensor]:
        for (x,) in DataLoader(TensorDataset(torch.ones(number, 4))):
            yield x

    def train(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.ddp(x).sum().backward()
        self.optimizer.step()


def _wrapper_alone_evaluates(loop: _Loop) -> None:
    """As in Lightning."""
    loop.ddp.eval()
    loop.ddp.module.train()
    for x in loop.batches(STEPS):
        loop.train(x)


def _fine_tuning(loop: _Loop) -> None:
    """All of the module is in evaluation mode, and trains; each second pass accumulates only."""
    loop.ddp.eval()
    for number, x in enumerate(loop.batches(STEPS)):
        with ExitStack() as stack:
            if number % 2 == 0:
                stack.enter_context(loop.ddp.no_sync())
            loop.ddp(x).sum().backward()


def _evaluations_that_record_gradients(loop: _Loop) -> None:
    """They are no steps, and the first rank has more of them than the second."""
    for _ in range(2):
        loop.ddp.eval()
        for x in loop.batches(3 - loop.rank):
            loop.ddp(x)
        loop.ddp.train()
        for x in loop.batches(STEPS // 2):
            loop.train(x)


def _evaluations_without_a_loader(loop: _Loop) -> None:
    for number in range(STEPS):
        if number % 5 == 1:
            loop.ddp.eval()
            for _ in range(3 - loop.rank):
                loop.ddp(torch.ones(1, 4))
            loop.ddp.train()
        loop.train(torch.ones(1, 4))


def _no_sync_without_a_loader(loop: _Loop) -> None:
    """Four passes are a step, in the first one, too."""
    for _ in range(STEPS):
        for last in (False, False, False, True):
            with ExitStack() as stack:
                if not last:
                    stack.enter_context(loop.ddp.no_sync())
                loop.ddp(torch.ones(1, 4)).sum().backward()
        loop.optimizer.step()


def _two_forward_passes(loop: _Loop) -> None:
    for _ in range(STEPS):
        loop.optimizer.zero_grad()
        (loop.ddp(torch.ones(1, 4)) + loop.ddp(torch.zeros(1, 4))).sum().backward()
        loop.optimizer.step()


LOOPS: dict[str, Callable[[_Loop], None]] = {
    "wrapper": _wrapper_alone_evaluates,
    "fine-tuning": _fine_tuning,
    "evaluations": _evaluations_that_record_gradients,
    "no loader": _evaluations_without_a_loader,
    "no_sync": _no_sync_without_a_loader,
    "two forward": _two_forward_passes,
}


def _two_modules(rank: int) -> None:
    """Two modules with an optimizer each, as a GAN has them, and something else in between."""
    first, second = _Loop(rank), _Loop(rank)
    for _ in range(STEPS):
        first.train(torch.ones(1, 4))
        second.train(torch.ones(1, 4))
        time.sleep(BETWEEN_S)


def _epochs(rank: int) -> None:
    loop = _Loop(rank)
    for _ in range(2):
        for x in loop.batches(STEPS // 2):
            loop.train(x)
        for _ in loop.batches(3):  # of an evaluation without the module
            pass


OTHERS: dict[str, Callable[[int], None]] = {"two modules": _two_modules, "epochs": _epochs}


def _job(rank: int, _: int, folder: str) -> None:
    record_each(Path(folder), list(LOOPS), rank, lambda name, rank: LOOPS[name](_Loop(rank)))
    record_each(Path(folder), list(OTHERS), rank, lambda name, rank: OTHERS[name](rank))


trained = ran_once(_job, 2, answers=False)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_step_is_a_pass_that_trains(trained: Path, loop: str) -> None:
    for rank in range(2):
        trace = read_trace(trained / loop / f"rank_{rank}.ddptrace")
        steps = trace.of_kind(Kind.STEP)
        real = steps[(steps["flags"] & (Flag.NO_BATCH | Flag.ABANDONED)) == 0]
        assert real["step"].tolist() == list(range(STEPS))
        passes = trace.of_kind(Kind.BACKWARD)["step"].tolist()
        if loop == "no_sync":
            passes = sorted(set(passes))
        assert passes == list(range(1, STEPS, 2) if loop == "fine-tuning" else range(STEPS))


def test_two_modules_with_an_optimizer_each_are_one_step_without_a_gap(trained: Path) -> None:
    steps = read_trace(trained / "two modules" / "rank_0.ddptrace").of_kind(Kind.STEP)
    real = steps[(steps["flags"] & (Flag.NO_BATCH | Flag.ABANDONED)) == 0]
    # Of the first step nobody knows that a second optimizer follows.
    assert STEPS <= len(real) <= STEPS + 1
    begin, end = real["times"][:, StepTime.WAIT_BEGIN], real["times"][:, StepTime.END]
    # What lies between two steps is in the later one.
    assert (begin[2:] - end[1:-1]).max() < BETWEEN_S * 1e9 / 2
    assert (end - begin)[2:].min() >= BETWEEN_S * 1e9


def test_the_end_of_the_loader_that_steps_take_batches_from_is_that_of_an_epoch(trained: Path) -> None:
    steps = read_trace(trained / "epochs" / "rank_0.ddptrace").of_kind(Kind.STEP)
    ends = ((steps["flags"] & Flag.NO_BATCH) > 0) & (steps["times"][:, StepTime.BEGIN] == 0)
    assert np.flatnonzero(ends).tolist() == [STEPS // 2, STEPS + 1]
