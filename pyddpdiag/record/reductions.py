"""Who calls collectives, and with which operation the script reduces: torch tells that to no listener.

Watched from Python, where `dist.all_reduce` and others call the process group. DDP's buckets and this package's hooks
do not come this way.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.model.callers import Caller
from pyddpdiag.model.reductions import CALLS, GROUPS, LETTERS, ReductionKind, Reductions
from pyddpdiag.record.averaged_again import AveragedAgain
from pyddpdiag.record.callers import Callers
from pyddpdiag.record.script_lines import line_of_frame
from pyddpdiag.record.unseen import unseen
from pyddpdiag.system.handlers import quietly

_METHODS: Final = {
    "allreduce": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "barrier": "barrier",
}
"""Methods of a process group, and what records and others call them."""

_REDUCE: Final = ("all_reduce", "reduce")

_watches: tuple[weakref.ref[ReductionWatch], ...] = ()  # a set of them is slow to go through
_names: dict[int, str] = {}  # of operations
_replaced: dict[str, tuple[Any, Any]] = {}  # by method: what was in the class, and ours


class _Calls:
    """What was seen of one operation in one group."""

    def __init__(self) -> None:
        self.calls = 0
        self.kinds: dict[tuple[str, str], int] = {}  # the place of each
        self.found: list[ReductionKind] = []
        self.counts: list[int] = []
        self.first: list[tuple[int, int]] = []  # kind and step
        self.last: deque[tuple[int, int]] = deque(maxlen=CALLS)

    def note(self, kind: tuple[str, str], step: int) -> bool:
        """One more call; whether that is something to be written down."""
        self.calls += 1
        place = self.kinds.get(kind)
        new = place is None
        if place is None:
            place = self.kinds[kind] = min(len(self.found), len(LETTERS) - 1)
            if place == len(self.found):
                self.found.append(ReductionKind(*kind, where=line_of_frame(sys._getframe())))
                self.counts.append(0)
        self.counts[place] += 1
        if len(self.first) < CALLS:
            self.first.append((place, step))
        self.last.append((place, step))
        # A power of 4.
        return new or (self.calls & (self.calls - 1) == 0 and self.calls.bit_length() % 2 == 1)


class ReductionWatch:
    """The reductions that this process's script calls, until it is closed.

    Args:
        core: the native recorder; it knows the step.
        found: called when there is something new to be written down.
        again: looks for gradients among it.
    """

    def __init__(self, core: _native.Recorder, found: Callable[[], None], again: AveragedAgain) -> None:
        self.again = again
        self._core = core
        self._found = found
        self._seen: dict[tuple[str, str], _Calls] = {}
        self._callers = Callers()
        _watch(self)

    def note(self, group: str, operation: str, op: str, dtype: str) -> None:
        """The script reduces."""
        seen = self._seen.get((group, operation))
        if seen is None:
            if len(self._seen) >= GROUPS:
                return
            seen = self._seen[group, operation] = _Calls()
        if seen.note((op, dtype), self._core.current_step):
            self._found()

    def note_caller(self, group: str, operation: str, size: int) -> None:
        """Something calls an operation of so many bytes."""
        if self._callers.note(group, operation, size, sys._getframe()):
            self._found()

    def callers(self) -> tuple[Caller, ...]:
        """What called collectives."""
        return self._callers.seen()

    def reductions(self) -> tuple[Reductions, ...]:
        """What was seen."""
        return tuple(self._kept(*key, seen) for key, seen in list(self._seen.items()))

    @staticmethod
    def _kept(group: str, operation: str, seen: _Calls) -> Reductions:
        first, last = tuple(seen.first), tuple(seen.last)
        kinds = zip(seen.found, seen.counts, strict=False)  # another thread may add to them
        return Reductions(
            group,
            operation,
            seen.calls,
            tuple(replace(kind, calls=calls) for kind, calls in kinds),
            first="".join(LETTERS[place] for place, _ in first),
            last="".join(LETTERS[place] for place, _ in last),
            first_steps=tuple(step for _, step in first),
            last_steps=tuple(step for _, step in last),
        )

    def close(self) -> None:
        """Watch no more."""
        _leave(self)


def _watch(watch: ReductionWatch) -> None:
    global _watches
    _watches = (*(one for one in _watches if one() is not None), weakref.ref(watch))
    for method, operation in _METHODS.items():
        # As it is in the class: asked for by name, pybind's method is a function that no instance can be bound to.
        own = dist.ProcessGroup.__dict__.get(method)
        if own is None or (method in _replaced and own is _replaced[method][1]):
            continue
        ours = _native.looked_at(dist.ProcessGroup, method, partial(_look, operation))
        _replaced[method] = (own, ours)
        setattr(dist.ProcessGroup, method, ours)


def _leave(watch: ReductionWatch) -> None:
    global _watches
    _watches = tuple(one for one in _watches if one() not in (None, watch))
    if _watches:
        return
    for method, (own, ours) in list(_replaced.items()):
        # Somebody else may have replaced it meanwhile, and calls ours.
        if dist.ProcessGroup.__dict__.get(method) is ours:
            setattr(dist.ProcessGroup, method, own)
            del _replaced[method]


def _look(operation: str, group: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """At a call of one of them."""
    if torch.compiler.is_compiling():
        return  # the compiler cannot follow the rest, and fails
    # Whatever the arguments are like: it is torch's to complain.
    with quietly, unseen():
        op, tensors = _described((*arguments, *options.values()))
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        name = group.group_name
        for one in _watches:
            if (watch := one()) is not None:
                watch.note_caller(name, operation, sum(one.nbytes for one in tensors))
                if operation in _REDUCE:
                    watch.note(name, operation, op, dtype)
                if watch.again.due and operation == "all_reduce":
                    watch.again.reduces(tensors, op, dist.get_process_group_ranks(group))


def _described(arguments: tuple[Any, ...]) -> tuple[str, list[torch.Tensor]]:
    """With what a call reduces, and what."""
    op: Any = None
    tensors: list[torch.Tensor] = []
    for one in arguments:
        some = one if isinstance(one, list) else [one]
        if some and isinstance(some[0], torch.Tensor):
            tensors = some
        elif isinstance(one, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            op = one
        else:
            op = getattr(one, "reduceOp", op)
    if op is None:
        return "SUM", tensors  # torch's own default
    kind = getattr(op, "op", op)
    number = int(kind)
    if number not in _names:
        _names[number] = kind.name
    return _names[number], tensors
