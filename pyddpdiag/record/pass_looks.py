"""What is seen of the passes of an attached module, from Python."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from pyddpdiag import _native
from pyddpdiag.model.clearing import Clearing
from pyddpdiag.model.training import MOST
from pyddpdiag.record.batch_marks import GivenBatches
from pyddpdiag.record.unseen import unseen


class Begun(NamedTuple):
    """A backward pass as it began: without gradients of an earlier one, not to be reduced, and with which weights."""

    fresh: bool
    local: bool
    weights: object


@dataclass
class PassLooks:
    """How many passes were `looked` at, and how many of them were reduced though backward ran under `no_sync`.

    `fresh`: how many began without gradients of an earlier pass. `batches`: what some passes were given. `local`: how
    many passes no rank reduced, and `local_after`: how many that were reduced had come before the last of them.
    `clearing`: of the optimizer's steps whose passes were all looked at.
    """

    batches: GivenBatches = field(default_factory=GivenBatches)
    looked: int = 0
    inside: int = 0
    fresh: int = 0
    local: int = 0
    local_after: int = 0
    clearing: Clearing = field(default_factory=Clearing)
    # Since the optimizer's last step, the passes that were looked at; and how many there were until then.
    begun: list[Begun] = field(default_factory=list)
    passes: int = 0
    # Whether it needs the parameters at the end of the optimizer's steps.
    seeks: bool = True
    _sought: int = 0
    # Parameters that have had a gradient.
    _some: list[weakref.ref[torch.Tensor]] = field(default_factory=list)

    def note_local(self, reduced: int) -> None:
        """The backward pass of one begins after so many that were reduced."""
        self.local += 1
        self.local_after = reduced

    def begins(self, *, local: bool) -> bool | None:
        """A backward pass begins: whether without gradients of an earlier one; None: that can't be read in no time."""
        some = [one for one in (ref() for ref in self._some) if one is not None]
        if not some:
            return None
        fresh = _native.are_without_gradients(some)
        self.note(Begun(fresh, local, _native.weight_marks(some[:1])[0] if fresh else None))
        return fresh

    def note(self, begun: Begun) -> None:
        """What was seen as a backward pass began."""
        if len(self.begun) < MOST:
            self.begun.append(begun)

    def steps(self, reduced: int, parameters: Iterable[weakref.ref[torch.Tensor]] = ()) -> None:
        """An optimizer has stepped with these parameters, after so many passes that were reduced."""
        if self.seeks:
            # One that is not used has none at any time.
            self._sought += 1
            living = (one for one in (ref() for ref in parameters) if one is not None)
            readable = (one for one in living if one.grad is not None and _is_soon_read(one.grad))
            with unseen():
                self._some = [weakref.ref(one) for one in itertools.islice(readable, 4)]
            self.seeks = not self._some and self._sought < MOST
        passes, begun = reduced + self.local, self.begun
        if begun and len(begun) == passes - self.passes:
            fresh = [one.fresh for one in begun]
            # SAM takes a pass elsewhere and comes back: it has used those gradients.
            unmoved = len({one.weights for one in begun}) == 1
            last = max((place for place, each in enumerate(fresh) if each), default=0)
            before = [one.local for one in begun[:last]]  # whose gradients were cleared again
            seen = self.clearing
            self.clearing = Clearing(
                seen.steps + 1,
                seen.kept + (not any(fresh)),
                seen.lost + (all(fresh) and unmoved and any(before)),
                seen.dropped + (not all(before)),
            )
        if begun:
            self.begun = []
        self.passes = passes


def _is_soon_read(gradient: torch.Tensor) -> bool:
    return (
        type(gradient) is torch.Tensor
        and gradient.layout is torch.strided
        and gradient.device.type == "cpu"
        and gradient.numel() <= 4096
    )
