"""What a trial can try: cures by their names, the values that fit a run, and which keep its bits. Without torch.

A trial takes NAME, NAME=VALUE, and several at once as NAME+NAME=VALUE.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pyddpdiag.cures.options import Cures, connections_of, divides_exactly, label_of, layout_of, with_layout
from pyddpdiag.errors import PyddpdiagError, UsageError
from pyddpdiag.model.tried import TriedCure

_SMALLEST_MIB: Final = 0.05
_PARTS: Final = (1, 2, 4, 16)

BUCKET_SIZES: Final = (1.0, 5.0, 100.0)
"""In MiB, around DDP's own 25, where the gradients' size is not known."""


class Named(NamedTuple):
    """A cure with its value; empty: what fits the run."""

    name: str
    value: str = ""


Wanted = tuple[Named, ...]
"""Cures that the user named, to be on together."""


@dataclass(frozen=True)
class Run:
    """What decides which cures are possible in a run, and what they keep.

    Attributes:
        today: what is applied already.
        ranks: of the module's group.
        one_host: whether all of them are on one.
        in_run: whether settings change while it runs; else each has a start of its own.
        gradient_bytes: of all parameters that are reduced; 0: not known.
        dtypes: of these, by torch's names; empty: not known.
        bucket_cap_mb: that the module has.
        default_cap: whether that is torch's own, whose first bucket is smaller.
        views: whether gradients are views already.
        keeps_layout: whether a new reducer has the buckets of the old one from its first pass on.
        no_rebuild: why no new reducer can be made; empty: it can.
        parameter_bytes: of each parameter that is reduced, in their order; empty: not known.
        here: ranks on the machine that has most of them.
        cores: that they may use there, all together; 0: not known.
        threads: of torch in each of them; 0: not known.
        interfaces: of all the ranks' hosts, but those of the loopback where there are several.
        in_use: the interfaces that Gloo was told to use; empty: its own choice.
    """

    today: Cures = field(default_factory=Cures)
    ranks: int = 1
    one_host: bool = True
    in_run: bool = False
    gradient_bytes: int = 0
    dtypes: frozenset[str] = frozenset()
    bucket_cap_mb: float = 25
    default_cap: bool = True
    views: bool = False
    keeps_layout: bool = True
    no_rebuild: str = ""
    parameter_bytes: tuple[int, ...] = ()
    here: int = 1
    cores: int = 0
    threads: int = 0
    interfaces: tuple[str, ...] = ()
    in_use: str = ""


class Kind(NamedTuple):
    """A cure that can be named.

    Attributes:
        change: today's setting with it and a value; a ValueError: that is none of it.
        values: those that fit a run.
        why_not: why none does.
        needs_start: only another process can have it.
        example: of how it is written.
    """

    change: Callable[[Cures, str], Cures]
    values: Callable[[Run], Sequence[str]] = lambda _: [""]
    why_not: str = ""
    needs_start: bool = False
    example: str = ""


def _set(**fields: Any) -> Callable[[Cures, str], Cures]:
    """A change that takes no value."""

    def changed(had: Cures, value: str) -> Cures:
        if value:
            raise ValueError(value)
        return replace(had, **fields)

    return changed


def _compressed(had: Cures, value: str) -> Cures:
    return replace(had, compress=value or "bf16", error_feedback=False)  # type: ignore[arg-type]


def _threads(run: Run) -> list[str]:
    share = max(1, run.cores // run.here)
    return [str(number) for number in dict.fromkeys((share, 1)) if run.cores and number != run.threads]


def _sizes(run: Run) -> list[str]:
    return [f"{size:g}" for size in (bucket_sizes(run) if run.gradient_bytes else BUCKET_SIZES)]


KINDS: Final[dict[str, Kind]] = {
    "shared-memory": Kind(
        lambda had, value: replace(had, shared_memory=value or "auto"),  # type: ignore[arg-type]
        lambda run: [""] if run.today.shared_memory == "off" else [],
        "the ranks average in shared memory already",
    ),
    "views": Kind(
        _set(gradient_as_bucket_view=True),
        lambda run: [] if run.views or run.today.gradient_as_bucket_view else [""],
        "gradients are views of the buckets already",
    ),
    "buckets": Kind(
        lambda had, value: with_layout(had, layout_of(value)),
        _sizes,
        "the gradients fit one small bucket, so that other sizes change nothing",
        example="buckets=4, or buckets=1:4:25 for a size of each bucket, in MiB",
    ),
    "compress": Kind(_compressed, example="compress=bf16 or compress=fp16"),
    "compress-fp16": Kind(_set(compress="fp16", error_feedback=False)),
    "error-feedback": Kind(_set(compress="bf16", error_feedback=True)),
    "connections": Kind(
        lambda had, value: replace(had, connections=connections_of(value or "auto")),
        lambda run: [] if run.one_host or run.today.connections else [""],
        "the ranks are on one host, or have several connections already",
        example="connections=4",
    ),
    "interface": Kind(
        lambda had, value: replace(had, interfaces=tuple(value.split("+"))),
        lambda run: [one for one in run.interfaces if one != run.in_use and len(run.interfaces) > 1],
        "the ranks' machines have no other one",
        needs_start=True,
        example="interface=eth0, or interface=eth0+eth1",
    ),
    "threads": Kind(
        lambda had, value: replace(had, threads=int(value)),
        _threads,
        "the ranks have the threads that fit their cores",
        needs_start=True,
        example="threads=4",
    ),
    "pin-ranks": Kind(
        _set(pin_ranks=True),
        lambda run: [""] if run.cores >= run.here and not run.today.pin_ranks else [],
        "there are fewer cores than ranks, or the ranks are pinned already",
        needs_start=True,
    ),
    "workers": Kind(
        lambda had, value: replace(had, num_workers=int(value)),
        lambda _: ["1", "2"],
        needs_start=True,
        example="workers=2",
    ),
}

IN_RUN: Final = ("shared-memory", "buckets")
"""Tried in a running training unless others are named: each only where the training's result stays the same, to the
last bit. Not `views`: a script may call `detach_()` on its gradients, which views refuse, or keep gradients of its
own."""

BY_STARTS: Final = ("interface", "threads", "pin-ranks")
"""What only another process can have, and keeps what is trained: tried by starts where no cure is named."""


def wanted_of(text: str, *, in_run: bool) -> Wanted:
    """The cures in `NAME[=VALUE][+NAME[=VALUE]...]`, which are on together.

    Raises:
        UsageError: there is no such cure, one is named twice, or a value is none of it.
    """
    known = [name for name, kind in KINDS.items() if not (in_run and kind.needs_start)]
    found: list[Named] = []
    for piece in text.split("+"):
        name, _, value = (word.strip() for word in piece.partition("="))
        if found and found[-1].name == "interface" and name not in KINDS:
            found[-1] = Named("interface", f"{found[-1].value}+{name}")
            continue
        if name not in known:
            hint = f"choose from {', '.join(known)}."
            if name in KINDS:
                hint = f"pyddpdiag try --restart takes it; in a running training, {hint}"
            raise UsageError(f"there is no cure '{name}' to try.", hint=hint)
        found.append(Named(name, value))
    kinds = ["compress" if one.name in ("compress-fp16", "error-feedback") else one.name for one in found]
    if len(set(kinds)) < len(kinds):
        raise UsageError(f"{text} names one thing twice.", hint="give each as a cure of its own, by commas.")
    for one in found:
        try:
            if one.value:
                KINDS[one.name].change(Cures(), one.value)
        except ValueError:
            raise UsageError(
                f"--cures {one.name}={one.value}: that is no value of {one.name}.",
                hint=f"write {KINDS[one.name].example or one.name}.",
            ) from None
    return tuple(found)


def candidates(wanted: Sequence[Wanted], run: Run) -> list[TriedCure]:
    """The settings to try beside today's, in the order in which they were named.

    `wanted`: what the user named; empty: the defaults.

    Returns:
        Those that cannot or may not be tried have `left` set.
    """
    found: dict[str, TriedCure] = {}
    default = IN_RUN if run.in_run else BY_STARTS
    for together in wanted or [(Named(name),) for name in default]:
        for parts in itertools.product(*(_values(one, run) for one in together)):
            cure = _together(parts, run)
            if not wanted and run.in_run and not cure.left and not cure.same_bits:
                name = "+".join(part.name for part in parts)
                cure = replace(cure, left=f"it changes the training's bits here; --cures {name} tries it")
            found.setdefault(cure.name, cure)
    return list(found.values())


def _values(one: Named, run: Run) -> list[Named]:
    """A cure with each of its values that change something; itself, if there is none."""
    fitting = [one.value] if one.value else KINDS[one.name].values(run)
    return [Named(one.name, value) for value in fitting] or [one]


def _together(parts: Sequence[Named], run: Run) -> TriedCure:
    """Today's setting with all of them."""
    cures, left = run.today, ""
    for part in parts:
        had, why = cures, "" if part.value or KINDS[part.name].values(run) else KINDS[part.name].why_not
        try:
            cures = cures if why else KINDS[part.name].change(cures, part.value)
        except PyddpdiagError as error:  # not beside what the run has
            why = error.message.rstrip(".")
        if cures == had:
            why = why or "the run has it already"
            left = left or (f"{part.name}: {why}" if len(parts) > 1 else why)
    views = cures.gradient_as_bucket_view != run.today.gradient_as_bucket_view
    if views or cures.bucket_sizes != run.today.bucket_sizes:
        left = left or run.no_rebuild
    options = cures.options()
    name = label_of(options, run.today.options()) if not left else ""
    name = name or " + ".join(f"{part.name} {part.value}".strip() for part in parts)
    return TriedCure(name, options, same_bits=_keeps_bits(cures, run), left=left)


def _keeps_bits(cures: Cures, run: Run) -> bool:
    """Whether a setting trains to the same bits as today's."""
    today, several, exact = run.today, run.ranks > 2, divides_exactly(run.ranks)
    apart = not run.one_host and (several or run.in_run)
    exactly_shared = exact and not (apart or today.compress) and run.dtypes <= {"float32", "float64"}
    changes = (
        cures.request.lanes != today.request.lanes and not exact,
        (cures.compress, cures.error_feedback) != (today.compress, today.error_feedback),
        cures.bucket_sizes != today.bucket_sizes and bool(several or today.compress),
        cures.shared_memory != today.shared_memory and not exactly_shared,
        cures.gradient_as_bucket_view != today.gradient_as_bucket_view
        and several
        and not (exact and run.keeps_layout),
        (cures.threads, cures.num_workers) != (today.threads, today.num_workers),
    )
    return not any(changes)


def bucket_sizes(run: Run) -> list[float]:
    """Caps in MiB that give other layouts than today's: one bucket for all gradients, and parts of them."""
    total = run.gradient_bytes / 2**20
    sizes: list[float] = []
    first_cap = 2**20 if run.default_cap else run.bucket_cap_mb * 2**20
    offered = {_buckets_of(run, first_cap, run.bucket_cap_mb * 2**20)}
    for part in _PARTS:
        # A little more, so that all of them fit one bucket.
        size = float(f"{1.01 * total / part:.2g}") if part > 1 else float(f"{1.1 * total:.2g}")
        alike = 0.8 < size / run.bucket_cap_mb < 1.25
        one_already = part == 1 and not run.default_cap and run.bucket_cap_mb >= total
        layout = _buckets_of(run, size * 2**20, size * 2**20)
        fits = size >= _SMALLEST_MIB and not alike and not one_already and size not in sizes
        if fits and (not layout or layout not in offered):
            sizes.append(size)
            offered.add(layout)
    return sizes


def _buckets_of(run: Run, first_cap: float, cap: float) -> tuple[int, ...]:
    """The buckets' bytes with these caps, as DDP fills them from the last parameter on; empty: not known.

    DDP closes a bucket when it has reached its cap. It keeps one for each type, which this does not follow.
    """
    if len(run.dtypes) > 1:
        return ()
    found: list[int] = []
    filled = 0
    for one in reversed(run.parameter_bytes):
        filled += one
        if filled >= (cap if found else first_cap):
            found.append(filled)
            filled = 0
    return (*found, filled) if filled else tuple(found)
