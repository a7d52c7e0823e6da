"""What a rank's recorder saw of its training besides gradients: a part of its sidecar.

Everything is bounded, however long a run is; a reader trusts nothing in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from pyddpdiag.model.averaged_again import AveragedAgain, averaged_again_from_json
from pyddpdiag.model.callers import Caller, caller_from_json
from pyddpdiag.model.clearing import Clearing, clearing_from_json
from pyddpdiag.model.modes import Mode, mode_from_json
from pyddpdiag.model.reductions import Reductions, reductions_from_json, reductions_to_json
from pyddpdiag.model.saves import Saved, saved_from_json, saved_to_json
from pyddpdiag.model.untrusted import needed_list, needed_text, needed_whole

MOST: Final = 32
"""Optimizers, loaders, settings and sets of parameters that are kept."""

MOST_NAMES: Final = 64
"""Parameters of a set that are kept by name."""

NAME_LIMIT: Final = 300

LONGEST_S: Final = 1e9
"""No evaluation takes so long: with what is longer, nobody could calculate."""

MOST_RATE: Final = 1e6
"""No scheduler makes so many steps for one of its optimizer's."""

T = TypeVar("T")


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
    scheduler_rate: float | None = None
    scheduled: int = 0
    planned: int | None = None
    planned_since: int | None = None


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
    parameters: tuple[str, ...]
    count: int
    first_step: int = 0
    last_step: int = 0
    times: int = 0
    marks: Mapping[int, tuple[tuple[int, float] | None, ...]] = field(default_factory=dict)
    trail: tuple[int, ...] = ()
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

    loader: Loaded
    where: str = ""
    passes: int = 0
    seconds: float = 0.0
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Marked:
    """What one parameter of a module, with this index, was right before steps of optimizers.

    `marks`: a checksum and the norm, by the number of synchronising backward passes that came before; None: it could
    not be read.
    """

    parameter: int
    marks: Mapping[int, tuple[int, float] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """All of it.

    `in_no_sync`: by module, how many passes were looked at, and how many of them ran backward under `no_sync` though
    their forward pass had not, so that they were reduced all the same. `fresh`: by module, how many passes were looked
    at, and how many of them began without gradients of an earlier one. `marked`: by module. `reductions`: that the
    script called itself. `batches`: by module, a checksum of what some of its passes with gradients were given, by
    their number from 1 on; 0: it could not be read. `averaged_again`, `clearing`: by module. `callers`: of collectives.
    """

    stepped: tuple[Stepped, ...] = ()
    unreduced: tuple[Unreduced, ...] = ()
    loaded: tuple[Loaded, ...] = ()
    in_no_sync: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    fresh: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    marked: Mapping[int, Marked] = field(default_factory=dict)
    reductions: tuple[Reductions, ...] = ()
    evaluated: tuple[Evaluated, ...] = ()
    saved: tuple[Saved, ...] = ()
    modes: tuple[Mode, ...] = ()
    batches: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    averaged_again: Mapping[int, AveragedAgain] = field(default_factory=dict)
    callers: tuple[Caller, ...] = ()
    clearing: Mapping[int, Clearing] = field(default_factory=dict)


def training_to_json(training: Training) -> dict[str, Any]:
    """The entry of a sidecar."""
    return {
        "optimizers": [
            {
                **asdict(one),
                "passes": {str(passes): count for passes, count in one.passes.items()},
                "settings": {str(step): text for step, text in one.settings.items()},
                "where": list(one.where),
            }
            for one in training.stepped
        ],
        "unreduced": [
            {
                **asdict(one),
                "parameters": list(one.parameters),
                "marks": {
                    str(number): list(map(_mark_to_json, marks)) for number, marks in one.marks.items()
                },
                "trail": "".join(f"{bits:08x}" for bits in one.trail),
            }
            for one in training.unreduced
        ],
        "loaders": [asdict(one) for one in training.loaded],
        "evaluations": [
            {
                **asdict(one.loader),
                "where": one.where,
                "passes": one.passes,
                "seconds": one.seconds,
                "marks": "".join(f"{mark:08x}" for mark in one.marks),
            }
            for one in training.evaluated
        ],
        "in_no_sync": {str(module): list(pair) for module, pair in training.in_no_sync.items()},
        "fresh": {str(module): list(pair) for module, pair in training.fresh.items()},
        "marked": {
            str(module): {
                "parameter": one.parameter,
                "marks": {str(passes): _mark_to_json(mark) for passes, mark in one.marks.items()},
            }
            for module, one in training.marked.items()
        },
        "reductions": [reductions_to_json(one) for one in training.reductions],
        "saves": [saved_to_json(one) for one in training.saved],
        "modes": [asdict(one) for one in training.modes],
        "batches": {
            str(module): {str(passes): f"{mark:08x}" for passes, mark in marks.items()}
            for module, marks in training.batches.items()
        },
        "averaged_again": {str(module): asdict(one) for module, one in training.averaged_again.items()},
        "callers": [asdict(one) for one in training.callers],
        "clearing": {str(module): asdict(one) for module, one in training.clearing.items()},
    }


def training_from_json(raw: Any) -> Training:
    """What can be understood of it."""
    if not isinstance(raw, Mapping):
        return Training()
    return Training(
        _each(raw.get("optimizers"), _stepped),
        _each(raw.get("unreduced"), _unreduced),
        _each(raw.get("loaders"), _loaded),
        _by_number(raw.get("in_no_sync"), _pair),
        _by_number(raw.get("fresh"), _pair),
        _by_number(
            raw.get("marked"),
            lambda one: Marked(needed_whole(one["parameter"]), _by_number(one["marks"], _mark)),
        ),
        _each(raw.get("reductions"), reductions_from_json),
        _each(raw.get("evaluations"), _evaluated),
        _each(raw.get("saves"), saved_from_json),
        _each(raw.get("modes"), mode_from_json),
        _by_number(raw.get("batches"), lambda marks: _by_number(marks, lambda mark: int(mark[:8], 16))),
        _by_number(raw.get("averaged_again"), averaged_again_from_json),
        _each(raw.get("callers"), caller_from_json),
        _by_number(raw.get("clearing"), clearing_from_json),
    )


def _each(entries: Any, convert: Callable[[Any], T]) -> tuple[T, ...]:
    found = []
    for entry in entries[:MOST] if isinstance(entries, list) else []:
        try:
            found.append(convert(entry))
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            continue
    return tuple(found)


def _by_number(entries: Any, convert: Callable[[Any], T]) -> dict[int, T]:
    found: dict[int, T] = {}
    for key, value in list(entries.items())[: 2 * MOST] if isinstance(entries, Mapping) else []:
        try:
            found[needed_whole(int(key[:12]))] = convert(value)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            continue
    return found


def _stepped(entry: Any) -> Stepped:
    rate = entry.get("scheduler_rate")
    return Stepped(
        _maybe(entry["module"]),
        _text(entry["optimizer"]),
        needed_whole(entry["steps"]),
        _by_number(entry["passes"], needed_whole),
        _by_number(entry["settings"], _text),
        tuple(_text(place) for place in needed_list(entry.get("where", []), MOST)),
        needed_whole(entry.get("looks", 0)),
        needed_whole(entry.get("idle", 0)),
        _maybe(entry.get("zero_since")),
        _text(entry.get("scheduler", "")),
        float(rate) if rate is not None and abs(rate) < MOST_RATE else None,
        needed_whole(entry.get("scheduled", 0)),
        _maybe(entry.get("planned")),
        _maybe(entry.get("planned_since")),
    )


def _unreduced(entry: Any) -> Unreduced:
    names = entry["parameters"]
    if not isinstance(names, list):
        raise TypeError("no list")
    return Unreduced(
        None if entry["module"] is None else needed_whole(entry["module"]),
        entry["all_of_it"] is True,
        tuple(_text(name) for name in names[:MOST_NAMES]),
        needed_whole(entry["count"]),
        needed_whole(entry["first_step"]),
        needed_whole(entry["last_step"]),
        needed_whole(entry["times"]),
        _by_number(entry["marks"], lambda marks: tuple(_mark(mark) for mark in marks[:MOST_NAMES])),
        _trail(entry.get("trail", "")),
        _text(entry.get("where", "")),
        needed_whole(entry.get("bytes", 0)),
        entry.get("reduced_before") is True,
    )


def _mark(mark: Any) -> tuple[int, float] | None:
    bits, norm = mark if mark is not None else ("", None)
    if norm is None or not math.isfinite(norm):
        return None  # the bits of a NaN may differ
    return int(bits[:16], 16), float(norm)


def _mark_to_json(mark: tuple[int, float] | None) -> list[Any] | None:
    return None if mark is None or not math.isfinite(mark[1]) else [f"{mark[0]:016x}", mark[1]]


def _trail(text: Any) -> tuple[int, ...]:
    return tuple(int(text[at : at + 8], 16) for at in range(0, min(len(text), 8 * 1024), 8))


def _pair(pair: Any) -> tuple[int, int]:
    return needed_whole(pair[0]), needed_whole(pair[1])


def _loaded(entry: Any) -> Loaded:
    return Loaded(
        _text(entry["sampler"]),
        entry["distributed"] is True,
        _maybe(entry.get("replicas")),
        _maybe(entry.get("rank")),
        entry["shuffle"] if isinstance(entry.get("shuffle"), bool) else None,
        _maybe(entry.get("seed")),
        _maybe(entry.get("length")),
        _maybe(entry.get("batch_size")),
        needed_whole(entry["epochs"]),
        needed_whole(entry["distinct"]),
        _maybe(entry.get("workers")),
        _maybe(entry.get("picked")),
    )


def _evaluated(entry: Any) -> Evaluated:
    seconds, passes = float(entry["seconds"]), needed_whole(entry["passes"])
    if not passes or not 0.0 <= seconds < LONGEST_S:
        raise ValueError("no pass, or no time")
    return Evaluated(_loaded(entry), _text(entry["where"]), passes, seconds, _trail(entry["marks"])[:MOST])


def _text(value: Any) -> str:
    return needed_text(value, NAME_LIMIT)


def _maybe(value: Any) -> int | None:
    return None if value is None else needed_whole(value)


__all__ = [
    "MOST",
    "MOST_NAMES",
    "Evaluated",
    "Loaded",
    "Marked",
    "Stepped",
    "Training",
    "Unreduced",
    "training_from_json",
    "training_to_json",
]
