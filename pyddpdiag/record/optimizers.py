"""What the optimizers of a training step with: after how many reductions, and with which parameters that had none."""

from __future__ import annotations

import os
import sys
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Final

import torch
from torch import compiler
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from pyddpdiag import _native
from pyddpdiag.model.training import MOST, MOST_NAMES, Marked, Stepped, Unreduced
from pyddpdiag.record import forks
from pyddpdiag.record.averaged_again import AveragedAgain
from pyddpdiag.record.identities import Identities
from pyddpdiag.record.modes import Modes
from pyddpdiag.record.reduced import Reduced
from pyddpdiag.record.sampled import is_sampled
from pyddpdiag.record.script_lines import line_of_frame
from pyddpdiag.record.stepping import Link, Stepping
from pyddpdiag.record.unseen import unseen
from pyddpdiag.system.handlers import by_handler

TRAIL: Final = 256
"""So often, at first, a checksum of all unreduced parameters of a set is kept."""

_UNKNOWN: Final = (None, None)

_MARK_BYTES: Final = 4 * 2**20  # how much of unreduced parameters is read at a time


@dataclass
class _Seen:
    """One set of unreduced parameters."""

    facts: Unreduced
    parameters: list[weakref.ref[torch.Tensor]]
    marks: dict[int, tuple[tuple[int, float] | None, ...]]
    trail: list[int]  # of all of them together, by times from 1; 0: not known

    def has_trail(self) -> bool:
        """Whether there is little to be read."""
        return sum(one.nbytes for one in (ref() for ref in self.parameters) if one is not None) <= _MARK_BYTES


class Optimizers:
    """Watches the steps of all optimizers of torch in this process, until it is closed.

    Args:
        core: the recorder's.
        found: called when there is something new to be written down.
        modes: looks at the mode of each module that an optimizer steps with.
        again: looks for gradients that are averaged once more.
    """

    def __init__(
        self, core: _native.Recorder, found: Callable[[], None], modes: Modes, again: AveragedAgain
    ) -> None:
        self._core = core
        self._found = found
        self._modes = modes
        self._again = again
        self.looks_at_all = False  # even where no module is recorded
        self._modules: list[Reduced] = []
        self._process = os.getpid()
        self._failed = False
        self._stepping: Identities[Optimizer, Stepping] = Identities()
        self._ended: list[Stepping] = []  # in their order, of optimizers that may be gone
        self._reduced: dict[int, weakref.ref[torch.Tensor]] = {}  # parameters in buckets, by their ids
        self._unreduced: dict[tuple[int | None, tuple[str, ...], int, bool], _Seen] = {}
        handles = [
            register_optimizer_step_pre_hook(self._hook(Stepping.rests, Optimizers._begins)),
            register_optimizer_step_post_hook(self._hook(Stepping.rested, Optimizers._ends)),
        ]
        self._close = weakref.finalize(self, lambda: list(map(methodcaller("remove"), handles)))
        self._close.atexit = False

    def add(self, module: Reduced) -> None:
        """A module is recorded from now on."""
        self._modules.append(module)
        self._again.add(module)

    def close(self) -> None:
        """Watch no more. What was seen stays."""
        self._close()

    def stepped(self) -> tuple[Stepped, ...]:
        """What was seen of each optimizer, and module that it has parameters of."""
        return tuple(
            stepped
            for one in list(self._ended)
            for stepped in one.stepped()
            if stepped.module is not None or self._modules
        )[:MOST]

    def unreduced(self) -> tuple[Unreduced, ...]:
        """The parameters with which optimizers stepped though no bucket had reduced their gradients."""
        return tuple(
            Unreduced(**{**vars(seen.facts), "marks": dict(seen.marks), "trail": tuple(seen.trail)})
            for seen in list(self._unreduced.values())
        )

    def marked(self) -> dict[int, Marked]:
        """What one parameter of each module was before steps."""
        return {
            one.native.index: Marked(one.smallest, dict(one.marks))
            for one in list(self._modules)
            if one.marks
        }

    def _hook(
        self,
        rests: Callable[[Stepping, Optimizer], bool],
        method: Callable[[Optimizers, Optimizer, Stepping | None], None],
    ) -> Callable[..., None]:
        """Of all optimizers; `method` is for steps that do not rest.

        Whatever is wrong with it, a training must not end by it: then this watches no more.
        """
        this, process = weakref.ref(self), self._process

        def hook(optimizer: Optimizer, *_: Any) -> None:
            if is_dynamo_compiling() or compiler._is_compiling_flag:
                return  # a call into the native module would break the graph
            watch = this()
            # A forked child has copies of locks, which another thread may have held.
            if watch is None or watch._failed or forks.process != process:
                return
            try:
                stepping = watch._stepping.known.get(id(optimizer), _UNKNOWN)[1]
                if stepping is None or not rests(stepping, optimizer):
                    with unseen():
                        method(watch, optimizer, stepping)
            except Exception as error:
                if by_handler(error):
                    raise
                watch._failed = True

        return hook

    def _begins(self, optimizer: Optimizer, stepping: Stepping | None) -> None:
        if not (self._modules or self.looks_at_all) or self._core.paused:
            return
        if stepping is None:
            stepping = Stepping(optimizer)
            self._stepping.add(optimizer, stepping)
            if len(self._ended) < MOST:
                self._ended.append(stepping)
        looks = stepping.due
        stepping.begins(optimizer)
        if not stepping.closely:
            return
        if looks:
            for module in self._modules:
                if module.forget_if_gone():
                    self._reduced.clear()
            stepping.look(optimizer, self._modules)
        for link in stepping.links:
            link.before = link.module.native.passes
            link.module.mark(link.before)
            self._again.steps(link.module)
            if link.module.ends_locally or (link.before == link.after and self._is_new(link)):
                self._note_module(optimizer, link.module)
            if looks:
                self._modes.look(link.module.native.index, link.module.owner, self._core.current_step)
        if looks and (stepping.links or not self._modules):
            self._look(optimizer, stepping)

    def _ends(self, _: Optimizer, stepping: Stepping | None) -> None:
        if stepping is None:
            return
        self._again.due = stepping.due
        for link in stepping.links:
            now = link.module.native.passes
            if stepping.closely:
                if stepping.steps > 1:
                    # A closure may run many passes within one step, each of which it needs. What came before another
                    # optimizer's step, or its own first one, was that one's.
                    since = max(link.module.stepped_at, link.after)
                    link.passes[max(link.before - since, 0) + min(now - link.before, 1)] += 1
                gradient = _gradient(link.module)
                link.gradient = (weakref.ref(gradient), _version(gradient)) if gradient is not None else None
            link.after = now
            link.module.stepped(now)
        steps = stepping.steps
        if stepping.links and steps & (steps - 1) == 0 and steps.bit_length() % 2 == 1:  # a power of 4
            self._found()

    def _is_new(self, link: Link) -> bool:
        """Whether there is a gradient that came after the last step."""
        gradient = _gradient(link.module)
        if gradient is None or link.gradient is None:
            return gradient is not None
        before, version = link.gradient
        return before() is not gradient or version != _version(gradient)

    def _look(self, optimizer: Optimizer, stepping: Stepping) -> None:
        """Looks for parameters outside every bucket, beside modules that were reduced."""
        some = self._outside(optimizer)
        if some:
            # DDP may have made other buckets since, which takes more time to ask for.
            self._reduced = {
                id(one): weakref.ref(one) for each in self._modules for one in self._in_buckets(each)
            }
            some = self._outside(optimizer)
        if not some:
            return  # as a rule: names take the most time
        unpassed = {id(link.module) for link in stepping.links if link.before == link.after}
        names = {module: module.names() for module in self._modules}
        outside: dict[Reduced | None, list[tuple[str, torch.Tensor]]] = {}
        for number, place, one in some:
            owner = next((module for module in self._modules if id(one) in names[module]), None)
            if owner is not None and (id(owner) in unpassed or not owner.native.passes):
                continue  # all of it is, or somebody else reduces it
            name = names[owner][id(one)] if owner is not None else _place(number, place, one)
            outside.setdefault(owner, []).append((name, one))
        for owner, of_owner in outside.items():
            self._note(owner, of_owner, all_of_it=False)

    def _outside(self, optimizer: Optimizer) -> list[tuple[int, int, torch.Tensor]]:
        """Its parameters with a gradient that are in no known bucket, by their places."""
        known = self._reduced
        return [
            (number, place, one)
            for number, group in enumerate(optimizer.param_groups)
            for place, one in enumerate(group["params"])
            if ((ref := known.get(id(one))) is None or ref() is not one)
            and one.grad is not None
            and not hasattr(one, "_ddp_ignored")
        ]

    def _in_buckets(self, module: Reduced) -> list[torch.Tensor]:
        """The parameters that are in a bucket."""
        index, refs = module.native.index, module.parameters
        places = {
            i for layout in self._core.layouts() if layout[1] == index for i in layout[3] if i < len(refs)
        }
        return [one for one in (refs[place]() for place in places) if one is not None]

    def _note_module(self, optimizer: Optimizer, module: Reduced) -> None:
        mine = {id(one) for group in optimizer.param_groups for one in group["params"]}
        names = module.names()
        some = [
            (names[id(one)], one)
            for one in (ref() for ref in module.parameters)
            if one is not None and one.grad is not None and id(one) in mine and id(one) in names
        ]
        if some:
            self._note(module, some, all_of_it=True, reduced_before=module.ends_locally)

    def _note(
        self,
        owner: Reduced | None,
        some: list[tuple[str, torch.Tensor]],
        *,
        all_of_it: bool,
        reduced_before: bool = False,
    ) -> None:
        index = owner.native.index if owner is not None else None
        names = tuple(name for name, _ in some[:MOST_NAMES])
        step = self._core.current_step
        key = index, names, len(some), reduced_before
        seen = self._unreduced.get(key)
        if seen is None:
            if len(self._unreduced) >= MOST:
                return
            where, size = line_of_frame(sys._getframe()), sum(one.nbytes for _, one in some)
            facts = Unreduced(
                index,
                all_of_it,
                names,
                len(some),
                first_step=step,
                where=where,
                bytes=size,
                reduced_before=reduced_before,
            )
            seen = _Seen(facts, [weakref.ref(one) for _, one in _within(some[:MOST_NAMES])], {}, [])
            self._unreduced[key] = seen
        times = seen.facts.times + 1
        seen.facts = Unreduced(**{**vars(seen.facts), "times": times, "last_step": step})
        on_trail = times <= TRAIL and seen.has_trail()
        if on_trail or is_sampled(times):
            self._mark(seen, times, on_trail=on_trail)

    def _mark(self, seen: _Seen, times: int, *, on_trail: bool) -> None:
        here = [one for one in (ref() for ref in seen.parameters) if one is not None]
        marks = tuple(_native.weight_marks(here)) if len(here) == len(seen.parameters) else ()
        if on_trail:
            seen.trail.append(_together(marks))
        if marks and is_sampled(times):
            seen.marks[times] = marks
            while len(seen.marks) > MOST:
                del seen.marks[next(iter(seen.marks))]
            self._found()


def _gradient(module: Reduced) -> torch.Tensor | None:
    """One of its gradients."""
    for ref in module.parameters:
        one = ref()
        if one is not None and (gradient := one.grad) is not None:
            return gradient
    return None


def _version(gradient: torch.Tensor) -> int:
    return 0 if gradient.is_inference() else gradient._version


def _place(group: int, place: int, parameter: torch.Tensor) -> str:
    return f"param_groups[{group}]['params'][{place}] of shape {tuple(parameter.shape)}"


def _within(some: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """The first ones, of not too many bytes in all."""
    left, found = _MARK_BYTES, list[tuple[str, torch.Tensor]]()
    for name, one in some:
        left -= one.nbytes
        if left < 0 and found:
            break
        found.append((name, one))
    return found


def _together(marks: tuple[tuple[int, float] | None, ...]) -> int:
    """32 bits of all of these checksums."""
    known = [mark[0] for mark in marks if mark is not None]
    return zlib.crc32(b"".join(bits.to_bytes(8, "little") for bits in known)) if known else 0
