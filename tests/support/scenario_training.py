"""Trains as a scenario says, in one rank; what comes of it to the last bit, step by step."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.cures import trial_engine, trial_schedule
from pyddpdiag.model.tried import TODAY
from support.scenario import Fault, Scenario

WIDTH = 12

Watch = Callable[[DistributedDataParallel, Any], None]
"""Gets the module that is looked at, and what the script calls: torch.compile's of it, or the same."""


class CaughtError(Exception):
    """Raised by a script in the middle of a pass, and caught by it."""


class Net(nn.Module):
    """Layers of which some are left out, shared, or with buffers."""

    def __init__(self, scenario: Scenario, rank: int, out: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.norm = nn.BatchNorm1d(WIDTH) if scenario.buffers else nn.Identity()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        if scenario.tied:
            self.right.weight = self.left.weight
        self.head = nn.Linear(WIDTH, out)
        if scenario.ignored:
            self.own = nn.Parameter(torch.full((WIDTH,), 1.0 + rank))
            self._ddp_params_and_buffers_to_ignore = ["own"]
        self.leaves_out = False
        self.fault: Fault | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.norm(self.body(x)))
        if self.fault == "forward":
            raise CaughtError
        y = self.left(x)
        if hasattr(self, "own"):
            y = y * self.own
        if not self.leaves_out:
            y = y + self.right(x)
        if self.fault == "backward":
            y.register_hook(_fail)
        return torch.as_tensor(self.head(torch.tanh(y)))


def _fail(_: torch.Tensor) -> None:
    raise CaughtError


class Training:
    """One rank's training.

    Args:
        scenario: what happens in it.
        rank: this one.
        watch: is called with the module that is looked at, when it is made.
        options: of DistributedDataParallel, beside the script's own.
    """

    def __init__(self, scenario: Scenario, rank: int, watch: Watch | None = None, **options: Any) -> None:
        self.scenario, self.rank = scenario, rank
        torch.manual_seed(scenario.seed)
        self.draws = torch.Generator().manual_seed(1000 * scenario.seed + rank)
        self.net = Net(scenario, rank, WIDTH if scenario.adversarial else 3)
        self.ddp, self.given = self._wrapped(self.net, options)
        self.optimizers = _optimizers(self.net, scenario.optimizers)
        self.judge = self.judge_given = self.judge_optimizer = None
        watched = (self.ddp, self.given)
        if scenario.adversarial:
            judge = Net(scenario, rank, 1)
            self.judge, self.judge_given = self._wrapped(judge, options)
            self.judge_optimizer = torch.optim.SGD(judge.parameters(), lr=0.05, momentum=0.5)
            watched = watched if scenario.tried_first else (self.judge, self.judge_given)
        if watch is not None:
            watch(*watched)
        self.dtype = torch.float32
        self.held: list[torch.Tensor | None] = []
        self.seen: list[str] = []
        self.saved: Any = None

    def run(self) -> list[str]:
        """What was seen: a line of each step, and the weights in the end."""
        for step in range(self.scenario.steps):
            if step == self.scenario.joined:
                self._join()
            self._before(step)
            try:
                if self.judge is not None:
                    self._adversarial_step(step)
                else:
                    self._step(step)
            except CaughtError:
                self.seen.append(f"{step} failed")
                self._clear(step)
            except RuntimeError as error:
                # DDP's own: all ranks see the same.
                self.seen.append(f"{step} {type(error).__name__} {str(error)[:40]}")
        self.seen.append(f"weights {self._weights()}")
        return self.seen

    def _wrapped(self, net: Net, options: dict[str, Any]) -> tuple[DistributedDataParallel, Any]:
        ours = {
            "find_unused_parameters": self.scenario.unused,
            "static_graph": self.scenario.static,
            "gradient_as_bucket_view": self.scenario.views,
            "broadcast_buffers": self.scenario.buffers,
        }
        ddp = DistributedDataParallel(net, **{**ours, **options})
        return ddp, torch.compile(ddp, backend="eager") if self.scenario.compiled else ddp

    def _batch(self) -> torch.Tensor:
        return torch.randn(4, WIDTH, generator=self.draws).to(self.dtype)

    def _before(self, step: int) -> None:
        scenario = self.scenario
        if (step, self.rank) in scenario.late:
            time.sleep(0.05)
        if scenario.frozen[1]:
            for parameter in self.net.body.parameters():
                parameter.requires_grad_(not scenario.frozen[0] <= step < scenario.frozen[1])
        if step == scenario.moved:
            self.ddp.to("cpu").to(torch.float32 if self.dtype == torch.float32 else self.dtype)
        if scenario.cast >= 0 and step in (scenario.cast, scenario.cast + 2):
            self.dtype = torch.float64 if step == scenario.cast else torch.float32
            self.ddp.to(self.dtype)
            if self.judge is not None:
                self.judge.to(self.dtype)
        if step == scenario.loaded and self.saved is not None:
            weights, states = copy.deepcopy(self.saved)
            self.ddp.load_state_dict(weights)
            for optimizer, state in zip(self.optimizers, states, strict=True):
                optimizer.load_state_dict(state)
        try:
            if step in scenario.evaluations and not scenario.buffers:
                self.ddp.eval()
                self.given(self._batch())
                self.ddp.train()
            if step in scenario.looks:
                self.given(self._batch())
        except RuntimeError as error:
            self.ddp.train()
            self.seen.append(f"{step} {type(error).__name__}")

    def _step(self, step: int) -> None:
        scenario = self.scenario
        fault = dict(scenario.faults).get(step)
        self.net.leaves_out = scenario.unused and (step + self.rank) % 3 == 0
        for part in range(scenario.accumulate):
            last = part + 1 == scenario.accumulate
            with nullcontext() if last else self.ddp.no_sync():
                with _failing(self.net, fault if last else None):
                    loss = self.given(self._batch()).square().mean()
                if last and fault == "between":
                    raise CaughtError
                loss.backward()
        self._update(step)

    def _adversarial_step(self, step: int) -> None:
        if self.scenario.frozen_first:
            self._train_net(step)
        self._train_judge(step)
        if not self.scenario.frozen_first:
            self._train_net(step)

    def _train_judge(self, step: int) -> None:
        assert self.judge is not None and self.judge_given is not None and self.judge_optimizer is not None
        for parameter in self.judge.parameters():
            parameter.requires_grad_(True)
        made = self.given(self._batch())
        loss = self.judge_given(self._batch()).mean() - self.judge_given(made.detach()).mean()
        loss.backward()
        self._note(step, self.judge.parameters())
        self.judge_optimizer.step()
        self.judge_optimizer.zero_grad(set_to_none=self.scenario.clearing != "zero")

    def _train_net(self, step: int) -> None:
        assert self.judge is not None and self.judge_given is not None
        fault = dict(self.scenario.faults).get(step)
        for parameter in self.judge.parameters():
            parameter.requires_grad_(False)
        with self.judge.no_sync(), _failing(self.net, fault):
            loss = self.judge_given(self.given(self._batch())).mean()
            if fault == "between":
                raise CaughtError
            loss.backward()
        self._update(step)

    def _update(self, step: int) -> None:
        scenario = self.scenario
        self._note(step, self.net.parameters())
        if scenario.clipped:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        if scenario.held and self.dtype == torch.float32:
            self.held = self.held or [one.grad for one in self.net.parameters()]
            with torch.no_grad():
                for one, gradient in zip(self.net.parameters(), self.held, strict=True):
                    if gradient is not None and gradient.dtype == one.dtype:
                        one.sub_(gradient, alpha=0.05)
        else:
            for number, optimizer in enumerate(self.optimizers):
                if step % (number + 1) == 0:
                    optimizer.step()
        if step == scenario.saved:
            states = [optimizer.state_dict() for optimizer in self.optimizers]
            self.saved = copy.deepcopy((self.ddp.state_dict(), states))
        self._clear(step)

    def _clear(self, step: int) -> None:
        clearing = self.scenario.clearing
        if clearing == "some":
            next(self.net.head.parameters()).grad = None
            self.net.zero_grad(set_to_none=False)
        else:
            self.net.zero_grad(set_to_none=clearing == "none" or (clearing == "in turn" and step % 2 == 0))

    def _join(self) -> None:
        batches = 0 if self.rank == self.scenario.without else 2 + self.rank
        self.net.leaves_out = False
        self.net.zero_grad()
        with self.ddp.join():
            for number in range(batches):
                self.ddp(self._batch()).square().mean().backward()
                self._note(-number, self.net.parameters())
                self.optimizers[0].step()
                self.net.zero_grad()
        self.seen.append(f"joined {self._weights()}")

    def _note(self, step: int, parameters: Iterator[nn.Parameter]) -> None:
        self.seen.append(f"{step} {digest([one.grad for one in parameters])}")

    def _weights(self) -> str:
        modules = [self.net] if self.judge is None else [self.net, self.judge]
        return digest([one for module in modules for one in module.state_dict().values()])


@contextmanager
def _failing(net: Net, fault: Fault | None) -> Iterator[None]:
    net.fault = fault
    try:
        yield
    finally:
        net.fault = None


def _optimizers(net: Net, number: int) -> list[torch.optim.Optimizer]:
    every = list(net.parameters())
    if number == 1:
        return [torch.optim.SGD(every, lr=0.05, momentum=0.9, weight_decay=0.01)]
    return [torch.optim.SGD(every[:3], lr=0.05, momentum=0.9), torch.optim.AdamW(every[3:], lr=0.01)]


def digest(tensors: Sequence[torch.Tensor | None]) -> str:
    """Of their bits, and of which are there."""
    found = hashlib.sha256()
    for one in tensors:
        found.update(b"none" if one is None else one.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def hurry(scenario: Scenario) -> None:
    """Lets a trial in this process change its setting after every pass, and keep the one that the scenario says."""
    trial_engine._AFTER = scenario.after  # type: ignore[misc]
    trial_schedule.UNCOUNTED = 0  # type: ignore[misc]
    trial_schedule._BLOCK_S = 0.0  # type: ignore[misc]
    trial_schedule._NOISY_PASSES = trial_schedule._FIRST_PASSES = 1  # type: ignore[misc]
    trial_schedule.FAR_TOO_SLOW = float("inf")  # type: ignore[misc]
    trial_schedule.MOST_BLOCKS = scenario.blocks  # type: ignore[misc,attr-defined]
    trial_schedule.Schedule._judge = lambda self: not self._open()  # type: ignore[method-assign]

    def best(self: Any) -> str:
        names = [TODAY, *self._open()]
        return names[scenario.kept % len(names)]

    trial_schedule.Schedule._best = best  # type: ignore[method-assign]
