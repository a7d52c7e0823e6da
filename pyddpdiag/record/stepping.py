"""One optimizer as it steps: whose parameters it has, its settings, its learning rate and what schedules that."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
)
from torch.optim.optimizer import Optimizer

from pyddpdiag.model.training import MOST, Stepped
from pyddpdiag.record.reduced import Reduced
from pyddpdiag.record.sampled import is_sampled
from pyddpdiag.record.script_lines import line_of_frame
from pyddpdiag.record.unseen import operating_unseen

CLOSELY: Final = 64
"""So many first steps are followed closely; after them those that are looked at, and the step before each."""

LOOK_INTERVAL: Final = 7
"""All parameters are looked at in the first steps, and in every n-th one after these.

A prime: scripts that average weights themselves do so every 10, 16 or 100 steps, and some look must come right after.
"""


@dataclass(eq=False)
class Link:
    """An optimizer's steps with the parameters of one module."""

    module: Reduced
    after: int = 0  # passes of the module when the optimizer had last stepped
    before: int = 0  # and when its next step began
    passes: Counter[int] = field(default_factory=Counter)
    # One that was there then, and its version. Not its id: another one may get it.
    gradient: tuple[weakref.ref[torch.Tensor], int] | None = None


class Stepping:
    """One optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.kind = type(optimizer).__name__
        self.steps = 0
        self.due = True
        """Whether all parameters are looked at in the next step."""
        self.closely = True
        """Whether the present step is followed closely."""
        self._rests = False  # nothing is kept of it but its number
        self.links: list[Link] = []
        self._next = 0  # the next step of which more is kept than its number
        self._settings: dict[int, str] = {}
        self._where: set[str] = set()  # lines of the script
        self._looks = 0
        self._idle = 0  # of the looks, those that found no gradient
        self._zero_since: int | None = None  # the step; 0: it was never more
        self._schedule: _Schedule | None = None

    def rests(self, optimizer: Optimizer) -> bool:
        """Counts a step that begins, if nothing else of it is kept, as of most: so this has few lines."""
        self._rests = False
        if self.steps + 1 >= self._next or self._zero_since is not None:
            return False
        for group in optimizer.param_groups:
            rate = group.get("lr")
            if not isinstance(rate, (int, float)) or rate != 0:
                break
        else:
            return False
        self.steps += 1
        if self._schedule is not None:
            self._schedule.look(self.steps)
        self._rests = True
        return True

    def rested(self, _: Optimizer) -> bool:
        """Whether nothing else is to be kept of a step that ends."""
        if self._rests:
            for link in self.links:
                module = link.module
                link.after = now = module.native.passes if module.passes is None else module.passes()
                module.stepped(now)
        return self._rests

    def begins(self, optimizer: Optimizer) -> None:
        """A step begins."""
        self.steps += 1
        looks = self.due
        self.due = self.steps < 4 or (self.steps + 1) % LOOK_INTERVAL == 0
        self.closely = looks or self.due or self.steps <= CLOSELY
        self._next = self._following()
        if self.steps & (self.steps - 1) == 0:
            self._note_settings(optimizer)
        sought = self.steps == 2 and getattr(optimizer.step, "_wrapped_by_lr_sched", False)
        for group in optimizer.param_groups:
            rate = group.get("lr")
            # As far as that can be read without waiting for a device.
            if not isinstance(rate, (int, float)) or rate != 0:
                self._zero_since = None
                break
        else:
            if self._zero_since is None:
                self._zero_since = self.steps - 1
                sought = self.steps > 1
        if sought and self._schedule is None:
            self._schedule = _schedule_of(optimizer, self.steps)
        elif self._schedule is not None:
            self._schedule.look(self.steps)

    def _following(self) -> int:
        """The next step that is followed closely, or at which the settings are noted."""
        after = self.steps + 1
        if after <= CLOSELY:
            return after
        # Those that are looked at, and the step before each.
        return min(after + max(-after % LOOK_INTERVAL - 1, 0), 1 << (after - 1).bit_length())

    def look(self, optimizer: Optimizer, modules: list[Reduced]) -> None:
        """Finds the modules that it has parameters of, some of which may have become known since."""
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self._looks += 1
        self._idle += all(one.grad is None for one in parameters)
        if is_sampled(self._looks):  # the stack takes as long as all else
            self._where.add(line_of_frame(sys._getframe()))
        mine = {id(one) for one in parameters}
        linked = [link.module for link in self.links]
        for module in modules:
            if module not in linked and not mine.isdisjoint(module.names()):
                # What it did before this was known counts as nothing.
                self.links.append(Link(module, after=module.native.passes if self.steps > 1 else 0))

    def stepped(self) -> Iterator[Stepped]:
        """What was seen of it, for each module that it has parameters of; one of none, if it has none."""
        links: list[Link | None] = [*self.links]
        for link in links or [None]:
            yield Stepped(
                None if link is None else link.module.native.index,
                self.kind,
                self.steps,
                {} if link is None else dict(link.passes.copy().most_common(MOST)),
                dict(self._settings),
                tuple(sorted(filter(None, self._where.copy())))[:MOST],
                self._looks,
                self._idle,
                self._zero_since,
                *(() if self._schedule is None else self._schedule.seen()),
            )

    def _note_settings(self, optimizer: Optimizer) -> None:
        """Notes the settings if they are others than before."""
        text = "; ".join(_settings(group) for group in optimizer.param_groups[:4])
        if self.steps == 1:
            text += f", state={_state(optimizer)}"
        if len(self._settings) < MOST and text != next(reversed(self._settings.values()), None):
            self._settings[self.steps] = text


class _Schedule:
    """What schedules an optimizer's learning rates, seen from its step `since` on."""

    def __init__(self, scheduler: LRScheduler, since: int) -> None:
        self._scheduler = weakref.ref(scheduler)
        self._kind = type(scheduler).__name__
        self._since, self._before = since, scheduler.last_epoch
        self._made = scheduler.last_epoch
        self._rate: float | None = None
        self._planned = _planned(scheduler)
        self._planned_since: int | None = None

    def look(self, steps: int) -> None:
        """The optimizer's step of that number begins."""
        scheduler = self._scheduler()
        if scheduler is None or self._planned_since is not None:
            return
        self._made = scheduler.last_epoch
        self._rate = (self._made - self._before) / (steps - self._since)
        if self._planned is not None and self._made >= self._planned:
            self._planned_since = steps - 1

    def seen(self) -> tuple[str, float | None, int, int | None, int | None]:
        """Its class, its steps for each of the optimizer's, and those that it made and was made for."""
        return self._kind, self._rate, max(self._made, 0), self._planned, self._planned_since


def _schedule_of(optimizer: Optimizer, steps: int) -> _Schedule | None:
    """Nobody but the scheduler knows of both. This looks at all live objects, some 10 ms, and once for an optimizer."""
    found = [
        cast("LRScheduler", candidate)
        for candidate in gc.get_objects()
        # Not isinstance: it runs code of objects that pretend to be of a class.
        if issubclass(type(candidate), LRScheduler) and vars(candidate).get("optimizer") is optimizer
    ]
    parts = {id(part) for one in found for part in getattr(one, "_schedulers", ())}
    whole = [one for one in found if id(one) not in parts and isinstance(vars(one).get("last_epoch"), int)]
    return _Schedule(whole[0], steps) if whole else None


def _planned(scheduler: Any) -> int | None:
    """For how many steps a scheduler was made, if it brings the rate down until then and says so."""
    if isinstance(scheduler, SequentialLR):
        last = _planned(scheduler._schedulers[-1])
        return None if last is None else scheduler._milestones[-1] + last
    if isinstance(scheduler, LambdaLR):  # those of transformers
        options = getattr(scheduler.lr_lambdas[0], "keywords", {})
        total = options.get("num_training_steps")
    else:
        names = {OneCycleLR: "total_steps", CosineAnnealingLR: "T_max", PolynomialLR: "total_iters"}
        total = getattr(scheduler, names.get(type(scheduler), ""), None)
    return total if isinstance(total, int) and total > 0 else None


def _state(optimizer: Optimizer) -> str:
    """Whether it has one before its first step, which was loaded then, and of which step."""
    first = next((one for one in optimizer.state.values() if one), None)
    if first is None:
        return "none"
    step = first.get("step") if isinstance(first, dict) else None
    if isinstance(step, torch.Tensor) and step.device.type == "cpu" and step.numel() == 1:
        with operating_unseen():
            step = step.item()
    return f"of step {step:.0f}" if isinstance(step, (int, float)) else "loaded"


def _settings(group: dict[str, Any]) -> str:
    settings = []
    for name, value in sorted(group.items()):
        numbers = value if isinstance(value, (list, tuple)) else (value,)
        if name in ("params", "param_names") or len(numbers) > 4:
            continue
        if all(isinstance(one, (bool, int, float)) for one in numbers):
            settings.append(f"{name}={value}")
    return ", ".join(settings)
