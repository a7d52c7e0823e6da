"""What a rank's recorder saw of its training besides gradients: a part of its sidecar.

Everything is bounded, however long a run is; a reader trusts nothing in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

from pyddpdiag.model.averaged_again import AveragedAgain
from pyddpdiag.model.callers import Caller
from pyddpdiag.model.clearing import Clearing
from pyddpdiag.model.fields import INLINE, Form, Key, Limit
from pyddpdiag.model.modes import Mode
from pyddpdiag.model.raised import FORWARDS, Raised
from pyddpdiag.model.reductions import Reductions
from pyddpdiag.model.saves import Saved

MOST: Final = 32
"""Optimizers, loaders, settings and sets of parameters that are kept."""

MOST_NAMES: Final = 64
"""Parameters of a set that are kept by name."""

LONGEST_S: Final = 1e9
"""No evaluation takes so long: with what is longer, nobody could calculate."""

MOST_RATE: Final = 1e6
"""No scheduler makes so many steps for one of its optimizer's."""


def _mark(mark: Any) -> tuple[int, float] | None:
    if mark is None or mark[1] is None or not math.isfinite(mark[1]):
        return None  # the bits of a NaN may differ
    return int(mark[0][:16], 16), float(mark[1])


def _written(mark: tuple[int, float] | None) -> list[Any] | None:
    return None if mark is None or not math.isfinite(mark[1]) else [f"{mark[0]:016x}", mark[1]]


def _trail(text: str) -> tuple[int, ...]:
    return tuple(int(text[at : at + 8], 16) for at in range(0, min(len(text), 8 * 1024), 8))


Mark = Annotated[tuple[int, float] | None, Form(_written, _mark)]
"""A checksum of 64 bits and a norm; None: it could not be read."""

Trail = Annotated[tuple[int, ...], Form(lambda marks: "".join(f"{mark:08x}" for mark in marks), _trail)]
"""Checksums of 32 bits, one after the other in a text."""

Bits = Annotated[int, Form(lambda mark: f"{mark:08x}", lambda text: int(text[:8], 16))]
"""One such checksum."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class Stepped:
    """An optimizer that steps with parameters of a module.

    Attributes:
        module: index of the module; None: the optimizer has parameters of no module that is recorded.
        optimizer: class of the optimizer.
        steps: how many it made.
        passes: by number of synchronising backward passes of the module, how many steps followed so many.
        settings: of its groups as a text, by the number of the step from which on they were seen, counted from 1.
        where: the lines of the script that call its steps, the first few.
        looks: steps before which its parameters were looked at.
        idle: in how many of them none had a gradient.
        zero_since: the number of steps after which the learning rates of all its groups became 0, and are so until now;
            0: they never were more. None: one is not 0.
        scheduler: class of what schedules its learning rates; empty: not known.
        scheduler_rate: how many steps of that there were for each of the optimizer's; None: not known.
        scheduled: how many it had made when the optimizer's last step began, and `planned` how many it was made for
            (None: it does not say); all until `planned_since` steps, after which it had made those (None: it has not).
    """

    module: int | None
    optimizer: str
    steps: int = 0
    passes: Mapping[int, int] = field(default_factory=dict)
    settings: Mapping[int, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    looks: int = 0
    idle: int = 0
    zero_since: int | None = None
    scheduler: str = ""
    scheduler_rate: Annotated[float | None, Limit(MOST_RATE)] = None
    scheduled: int = 0
    planned: int | None = None
    planned_since: int | None = None

    @property
    def line(self) -> str | None:
        """The first of the lines that call its steps; None: none is known."""
        return self.where[0] if self.where else None


@dataclass(frozen=True)
class Unreduced:
    """Parameters with a gradient with which an optimizer stepped, and which no bucket had reduced since its last step.

    Attributes:
        module: index of the module that they belong to; None: they belong to no module that is recorded.
        all_of_it: the module had no synchronising backward pass since the optimizer's last step.
        reduced_before: it had one, but passes that nobody reduced came after that.
        parameters: their names, the first ones.
        count: how many there are.
        first_step, last_step: of the trace, in which they were seen so.
        times: how often they were seen so.
        marks: by that number, a checksum and the norm of each of `parameters` before the optimizer stepped; None for
            one that could not be read.
        trail: 32 bits of the checksums of all of them together, by that number from 1 on; 0: not known.
        where: the line of the script at which the optimizer steps; empty: not known.
        bytes: of all of them; 0: not known.
    """

    module: int | None
    all_of_it: bool
    parameters: Annotated[tuple[str, ...], Limit(MOST_NAMES)]
    count: int
    first_step: int = 0
    last_step: int = 0
    times: int = 0
    marks: Mapping[int, tuple[Mark, ...]] = field(default_factory=dict)
    trail: Trail = ()
    where: str = ""
    bytes: int = 0
    reduced_before: bool = False


@dataclass(frozen=True)
class Loaded:
    """A loader that a training took batches from, by what can be seen of it.

    Attributes:
        sampler: class of the sampler.
        distributed: it gives each rank its own part of the data.
        replicas, rank: among how many it divides the data, and whose part it gives; None: it does not divide.
        shuffle, seed: as the sampler has them; None: it has no such thing.
        length: samples of one epoch on this rank; None: not known.
        batch_size: None: not known, or batches differ in size.
        epochs: how often it was gone through.
        distinct: in how many of these `set_epoch` had set another epoch than before.
        workers: processes that make its batches; None: not known.
        picked: a checksum of which samples of a data set its Subset holds; None: it has none, or it is not known.
    """

    sampler: str
    distributed: bool
    replicas: int | None = None
    rank: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    length: int | None = None
    batch_size: int | None = None
    epochs: int = 0
    distinct: int = 0
    workers: int | None = None
    picked: int | None = None


@dataclass(frozen=True)
class Evaluated:
    """Passes to the end of a loader while no gradients were recorded.

    Attributes:
        loader: what can be seen of it; its `epochs` and `distinct` are 0.
        where: the line of the script that takes the batches; empty: not known.
        passes: how many there were.
        seconds: that they took in sum.
        marks: a checksum of the batches of each of the first passes; 0: they could not be read.
    """

    loader: Annotated[Loaded, INLINE]
    where: str = ""
    passes: int = 0
    seconds: Annotated[float, Limit(LONGEST_S)] = 0.0
    marks: Trail = ()

    @property
    def sound(self) -> bool:
        """Whether there was a pass."""
        return self.passes > 0


@dataclass(frozen=True)
class Marked:
    """What one parameter of a module, with this index, was right before steps of optimizers.

    `marks`: a checksum and the norm, by the number of synchronising backward passes that came before; None: it could
    not be read.
    """

    parameter: int
    marks: Mapping[int, Mark] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """All of it.

    `in_no_sync`: by module, how many passes were looked at, and how many of them ran backward under `no_sync` though
    their forward pass had not, so that they were reduced all the same. `fresh`: by module, how many passes were looked
    at, and how many of them began without gradients of an earlier one. `marked`: by module. `reductions`: that the
    script called itself. `batches`: by module, a checksum of what some of its passes with gradients were given, by
    their number from 1 on; 0: it could not be read. `batch_values`: likewise, how many values the tensors had.
    `averaged_again`, `clearing`: by module. `callers`: of collectives. `raised`: by forward passes.
    """

    forgiving: ClassVar[bool] = True

    stepped: Annotated[tuple[Stepped, ...], Key("optimizers")] = ()
    unreduced: tuple[Unreduced, ...] = ()
    loaded: Annotated[tuple[Loaded, ...], Key("loaders")] = ()
    evaluated: Annotated[tuple[Evaluated, ...], Key("evaluations")] = ()
    in_no_sync: Mapping[int, Pair] = field(default_factory=dict)
    fresh: Mapping[int, Pair] = field(default_factory=dict)
    marked: Mapping[int, Marked] = field(default_factory=dict)
    reductions: tuple[Reductions, ...] = ()
    saved: Annotated[tuple[Saved, ...], Key("saves")] = ()
    modes: tuple[Mode, ...] = ()
    batches: Mapping[int, Mapping[int, Bits]] = field(default_factory=dict)
    averaged_again: Mapping[int, AveragedAgain] = field(default_factory=dict)
    callers: tuple[Caller, ...] = ()
    clearing: Mapping[int, Clearing] = field(default_factory=dict)
    batch_values: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    raised: Annotated[tuple[Raised, ...], Limit(FORWARDS)] = ()
