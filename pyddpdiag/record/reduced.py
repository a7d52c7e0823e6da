"""Which parameters a reducer of DDP reduces: fixed when DDP makes it, and known to it alone."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import Final

import torch
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native
from pyddpdiag.model.training import MOST
from pyddpdiag.record.module_tree import inside, parameters_in
from pyddpdiag.record.pass_looks import PassLooks

_SMALL_BYTES: Final = 2**16  # of what is read before every step


def parameters_of(ddp: DistributedDataParallel) -> list[tuple[str, torch.nn.Parameter]]:
    """Those of a module that its reducer reduces, though some may be frozen at the moment, by name.

    DDP keeps those that the script has replaced since, whose names are others' now.
    """
    held = {id(one) for bucket in _native.parameters_of(ddp.reducer) for one in bucket}
    names = {id(one): name for name, one in parameters_in(inside(ddp))}
    return [
        (names.get(id(one), f"replaced[{place}]"), one)
        for place, one in enumerate(ddp._module_parameters)
        if id(one) in held
    ]


@dataclass(eq=False)
class Reduced:
    """A module whose buckets are recorded; it keeps nothing of it alive.

    `owner` is the DDP module; None: a reducer has none.
    """

    native: _native.Module
    parameters: list[weakref.ref[torch.Tensor]]
    owner: weakref.ref[torch.nn.Module] | None = None
    looks: PassLooks = field(default_factory=PassLooks)
    ranks: frozenset[int] = frozenset()  # that average its gradients; empty: not known
    stepped_at: int = 0  # its passes when any optimizer last stepped with it
    local_at: int = 0  # and those that were not reduced
    thread: int = 0  # on which that was; no other one may read its gradients
    smallest: int = 0  # of the parameters, whose weights are marked before steps
    marks: dict[int, tuple[int, float] | None] = field(default_factory=dict)  # by passes
    passes: Callable[[], int] | None = None  # how many there were, for every step; None: `native` is asked

    def forget_if_gone(self) -> bool:
        """Forgets its parameters if the script let go of it: another module may have them now. Whether it did."""
        gone = (
            self.owner() is None if self.owner is not None else all(ref() is None for ref in self.parameters)
        )
        if not (gone and self.parameters):
            return False
        self.parameters.clear()
        return True

    @property
    def ends_locally(self) -> bool:
        """Whether passes since an optimizer's last step were reduced, and others came after these that were not."""
        looks = self.looks
        # Without `no_sync` there are none: this is asked before every step.
        return looks.local > self.local_at and self.stepped_at < self.native.passes == looks.local_after

    def stepped(self, passes: int) -> None:
        """An optimizer has stepped with it, after so many passes."""
        looks = self.looks
        # Mostly no pass was looked at: this runs after every step.
        if looks.begun or looks.seeks:
            looks.steps(passes, self.parameters)
        else:
            looks.passes = passes + looks.local
        self.stepped_at, self.local_at = passes, looks.local
        self.thread = get_ident()

    def mark(self, passes: int) -> None:
        """Notes what one parameter is before a step, after so many passes."""
        one = self.parameters[self.smallest]() if self.parameters else None
        if one is not None and one.nbytes <= _SMALL_BYTES:
            self.marks[passes] = _native.weight_marks([one])[0]
            while len(self.marks) > MOST:
                del self.marks[next(iter(self.marks))]

    def names(self) -> dict[int, str]:
        """The names of all parameters that it has now, by their ids."""
        if not self.parameters:
            return {}
        owner = self.owner() if self.owner is not None else None
        if owner is not None:
            named = ((name.removeprefix("module."), one) for name, one in parameters_in(owner))
            return {id(one): name for name, one in named if not hasattr(one, "_ddp_ignored")}
        found = ((ref(), name) for ref, name in zip(self.parameters, self.native.names, strict=True))
        return {id(one): name for one, name in found if one is not None}
