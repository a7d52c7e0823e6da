"""What the optimizers of a training step with: after how many reductions, and with which parameters that had none."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from pyddpdiag import _native
from pyddpdiag.model.training import MOST, MOST_NAMES, Stepped, Unreduced

LOOK_INTERVAL: Final = 8
"""All parameters are looked at in the first steps, and in every n-th one after these."""

_MARK_BYTES: Final = 4 * 2**20  # how much of unreduced parameters is read, in few steps


@dataclass(eq=False)
class Reduced:
    """A module whose buckets are recorded; it keeps nothing of it alive.

    `owner` is the DDP module; None: a reducer has none.
    """

    native: _native.Module
    parameters: list[weakref.ref[torch.Tensor]]
    owner: weakref.ref[torch.nn.Module] | None = None

    def names(self) -> dict[int, str]:
        """The names of all parameters that it has now, by their ids."""
        owner = self.owner() if self.owner is not None else None
        if owner is not None:
            named = ((name.removeprefix("module."), one) for name, one in owner.named_parameters())
            return {id(one): name for name, one in named if not hasattr(one, "_ddp_ignored")}
        found = ((ref(), name) for ref, name in zip(self.parameters, self.native.names, strict=True))
        return {id(one): name for one, name in found if one is not None}


@dataclass(eq=False)
class _Link:
    """An optimizer's steps with the parameters of one module."""

    module: Reduced
    after: int = 0  # passes of the module when the optimizer had last stepped
    before: int = 0  # and when its next step began
    passes: Counter[int] = field(default_factory=Counter)
    gradient: tuple[int, int] | None = None  # one that was there then: its id and version


@dataclass
class _Seen:
    """One set of unreduced parameters."""

    facts: Unreduced
    parameters: list[weakref.ref[torch.Tensor]]
    marks: dict[int, tuple[tuple[int, float] | None, ...]]


class _Stepping:
    """One optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.kind = type(optimizer).__name__
        self.steps = 0
        self.links: list[_Link] = []
        self.settings: dict[int, str] = {}

    def find_links(self, optimizer: Optimizer, modules: list[Reduced]) -> None:
        """The modules that it has parameters of, some of which may have become known since."""
        mine = {id(one) for group in optimizer.param_groups for one in group["params"]}
        linked = [link.module for link in self.links]
        for module in modules:
            if module not in linked and not mine.isdisjoint(module.names()):
                # What it did before this was known counts as nothing.
                self.links.append(_Link(module, after=module.native.passes if self.steps > 1 else 0))

    def note_settings(self, optimizer: Optimizer) -> None:
        """Notes the settings if they are others than before."""
        text = "; ".join(_settings(group) for group in optimizer.param_groups[:4])
        if len(self.settings) < MOST and text != next(reversed(self.settings.values()), None):
            self.settings[self.steps] = text


class Optimizers:
    """Watches the steps of all optimizers of torch in this process, until it is closed.

    Args:
        core: the recorder's.
        found: called when there is something new to be written down.
    """

    def __init__(self, core: _native.Recorder, found: Callable[[], None]) -> None:
        self._core = core
        self._found = found
        self._modules: list[Reduced] = []
        self._stepping: weakref.WeakKeyDictionary[Optimizer, _Stepping] = weakref.WeakKeyDictionary()
        self._ended: list[_Stepping] = []  # in their order, of optimizers that may be gone
        self._unreduced: dict[tuple[int | None, tuple[str, ...], int], _Seen] = {}
        this = weakref.ref(self)
        handles = [
            register_optimizer_step_pre_hook(lambda one, *_: _call(this, "_begins", one)),
            register_optimizer_step_post_hook(lambda one, *_: _call(this, "_ended_step", one)),
        ]
        self._close = weakref.finalize(self, _remove, handles)
        self._close.atexit = False

    def add(self, module: Reduced) -> None:
        """A module is recorded from now on."""
        self._modules.append(module)

    def close(self) -> None:
        """Watch no more. What was seen stays."""
        self._close()

    def stepped(self) -> tuple[Stepped, ...]:
        """What was seen of each optimizer, and module that it has parameters of."""
        return tuple(
            Stepped(
                link.module.native.index,
                one.kind,
                one.steps,
                dict(link.passes.most_common(MOST)),
                dict(one.settings),
            )
            for one in self._ended
            for link in one.links
        )[:MOST]

    def unreduced(self) -> tuple[Unreduced, ...]:
        """The parameters with which optimizers stepped though no bucket had reduced their gradients."""
        return tuple(
            Unreduced(**{**vars(seen.facts), "marks": dict(seen.marks)}) for seen in self._unreduced.values()
        )

    def _begins(self, optimizer: Optimizer) -> None:
        if not self._modules or self._core.paused:
            return
        stepping = self._stepping.get(optimizer)
        if stepping is None:
            stepping = self._stepping[optimizer] = _Stepping(optimizer)
            if len(self._ended) < MOST:
                self._ended.append(stepping)
        stepping.steps += 1
        steps = stepping.steps
        looks = steps <= 4 or steps % LOOK_INTERVAL == 0
        if looks:
            stepping.find_links(optimizer, self._modules)
        if steps & (steps - 1) == 0:
            stepping.note_settings(optimizer)
        for link in stepping.links:
            link.before = link.module.native.passes
            if link.before == link.after and self._is_new(link):
                self._note_module(optimizer, link.module)
        if looks and stepping.links:
            self._look(optimizer, stepping)

    def _ended_step(self, optimizer: Optimizer) -> None:
        stepping = self._stepping.get(optimizer)
        for link in stepping.links if stepping is not None else ():
            now = link.module.native.passes
            # What came before its first step may be another optimizer's.
            if stepping is not None and stepping.steps > 1:
                # A closure may run many passes within one step, each of which it needs.
                link.passes[link.before - link.after + min(now - link.before, 1)] += 1
            link.after = now
            link.gradient = _gradient(link.module)
        if stepping is not None and stepping.links and _is_power_of_4(stepping.steps):
            self._found()

    def _is_new(self, link: _Link) -> bool:
        """Whether there is a gradient that came after the last step."""
        gradient = _gradient(link.module)
        return gradient is not None and gradient != link.gradient

    def _look(self, optimizer: Optimizer, stepping: _Stepping) -> None:
        """Looks for parameters outside every bucket, beside modules that were reduced."""
        reduced: set[int] = set()
        for module in self._modules:
            reduced |= self._in_buckets(module)
        unpassed = {id(link.module) for link in stepping.links if link.before == link.after}
        names = {module: module.names() for module in self._modules}
        outside: dict[Reduced | None, list[tuple[str, torch.Tensor]]] = {}
        for number, group in enumerate(optimizer.param_groups):
            for place, one in enumerate(group["params"]):
                if one.grad is None or id(one) in reduced or hasattr(one, "_ddp_ignored"):
                    continue
                owner = next((module for module in self._modules if id(one) in names[module]), None)
                if owner is not None and (id(owner) in unpassed or not owner.native.passes):
                    continue  # all of it is, or somebody else reduces it
                name = names[owner][id(one)] if owner is not None else _place(number, place, one)
                outside.setdefault(owner, []).append((name, one))
        for owner, some in outside.items():
            self._note(owner, some, all_of_it=False)

    def _in_buckets(self, module: Reduced) -> set[int]:
        index = module.native.index
        some = [module.parameters[i]() for layout in self._core.layouts() if layout[1] == index
                for i in layout[3] if i < len(module.parameters)]  # fmt: skip
        return {id(one) for one in some if one is not None}

    def _note_module(self, optimizer: Optimizer, module: Reduced) -> None:
        mine = {id(one) for group in optimizer.param_groups for one in group["params"]}
        names = module.names()
        some = [
            (names[id(one)], one)
            for one in (ref() for ref in module.parameters)
            if one is not None and one.grad is not None and id(one) in mine and id(one) in names
        ]
        if some:
            self._note(module, some, all_of_it=True)

    def _note(self, owner: Reduced | None, some: list[tuple[str, torch.Tensor]], *, all_of_it: bool) -> None:
        index = owner.native.index if owner is not None else None
        names = tuple(name for name, _ in some[:MOST_NAMES])
        step = self._core.current_step
        seen = self._unreduced.get((index, names, len(some)))
        if seen is None:
            if len(self._unreduced) >= MOST:
                return
            facts = Unreduced(index, all_of_it, names, len(some), first_step=step)
            seen = _Seen(facts, [weakref.ref(one) for _, one in _within(some[:MOST_NAMES])], {})
            self._unreduced[index, names, len(some)] = seen
        times = seen.facts.times + 1
        seen.facts = Unreduced(**{**vars(seen.facts), "times": times, "last_step": step})
        if _is_marked(times):
            self._mark(seen, times)

    def _mark(self, seen: _Seen, times: int) -> None:
        here = [ref() for ref in seen.parameters]
        if not any(one is None for one in here):
            seen.marks[times] = tuple(_native.weight_marks([one for one in here if one is not None]))
            while len(seen.marks) > MOST:
                del seen.marks[next(iter(seen.marks))]
            self._found()


def _gradient(module: Reduced) -> tuple[int, int] | None:
    """One of its gradients."""
    for ref in module.parameters:
        one = ref()
        if one is not None and one.grad is not None:
            return id(one.grad), one.grad._version
    return None


def _settings(group: dict[str, Any]) -> str:
    settings = []
    for name, value in sorted(group.items()):
        numbers = value if isinstance(value, (list, tuple)) else (value,)
        if name in ("params", "param_names") or len(numbers) > 4:
            continue
        if all(isinstance(one, (bool, int, float)) for one in numbers):
            settings.append(f"{name}={value}")
    return ", ".join(settings)


def _place(group: int, place: int, parameter: torch.Tensor) -> str:
    return f"param_groups[{group}]['params'][{place}] of shape {tuple(parameter.shape)}"


def _within(some: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """The first ones, of not too many bytes in all."""
    left = _MARK_BYTES
    found: list[tuple[str, torch.Tensor]] = []
    for name, one in some:
        left -= one.nbytes
        if left < 0 and found:
            break
        found.append((name, one))
    return found


def _is_power_of_4(number: int) -> bool:
    return number & (number - 1) == 0 and number.bit_length() % 2 == 1


def _is_marked(times: int) -> bool:
    """Of ranks that average their weights now and then, one of these finds them equal."""
    return times <= 9 or times - (1 << times.bit_length() - 1) <= 2


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _call(this: weakref.ref[Any], method: str, optimizer: Optimizer) -> None:
    found = this()
    if found is not None:
        getattr(found, method)(optimizer)


__all__ = ["Optimizers", "Reduced"]
