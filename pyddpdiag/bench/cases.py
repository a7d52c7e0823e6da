"""The cases of a sweep: what varies, the order of importance, and their names. Does not need torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from pyddpdiag.errors import UsageError
from pyddpdiag.paths.averaging import Averaging, HookKind, current_label, from_label, refuse_combined
from pyddpdiag.paths.options import Compress, SharedMemory
from pyddpdiag.workloads.archs import ARCHS

MODELS: Final = tuple(ARCHS)
NOT_OURS: Final = ("torch_bf16", "noop")
"""Hooks of torch's that are only measured."""

HOOKS: Final = (
    "plain",
    "builtin",
    "native",
    "timed",
    "native+bf16",
    "timed+bf16",
    "torch_bf16",
    "native+shared",
    "noop",
)
"""What a whole sweep compares: labels of `Averaging`, and `NOT_OURS`."""

SIZES: Final = tuple(2**power for power in range(10, 25, 2))
DTYPE: Final = "float32"


@dataclass(frozen=True)
class Case:
    """One thing to measure; the same on all ranks.

    Attributes:
        kind: a training step with DDP, or all-reduces alone.
        world_size: how many ranks take part: those from 0 on.
        picks: which of a rank's interfaces Gloo uses, by their places in its list; empty: the run's own choice.
        model: of a step; see MODELS.
        hook: of a step, by its label (`Averaging.label`), or one of NOT_OURS.
        bucket_cap_mb: of a step, in MiB; None leaves DDP its default (25, and 1 for the first bucket).
        bytes, chunks: of an all-reduce: in all, and in how many operations at once.
    """

    kind: Literal["step", "allreduce"]
    world_size: int
    picks: tuple[int, ...] = ()
    model: str = ""
    hook: str = ""
    bucket_cap_mb: float | None = None
    bytes: int = 0
    chunks: int = 1

    def label(self, interface: str) -> str:
        """A name that no other case of the same sweep has."""
        where = f"-{interface}" if interface else ""
        if self.kind == "allreduce":
            chunks = f"x{self.chunks}" if self.chunks > 1 else ""
            return f"allreduce[{self.bytes}B{chunks}-{self.world_size}ranks{where}]"
        cap = "default" if self.bucket_cap_mb is None else f"{self.bucket_cap_mb:g}MiB"
        return f"step[{self.model}-{self.hook}-{cap}-{self.world_size}ranks{where}]"

    def info(self) -> dict[str, Any]:
        """The case as keys of `extra_info`."""
        facts: dict[str, Any] = {"kind": self.kind, "world_size": self.world_size, "ranks": self.world_size}
        facts["dtype"] = DTYPE
        if self.kind == "allreduce":
            return {**facts, "bytes": self.bytes, "chunks": self.chunks}
        return {
            **facts,
            "model": self.model,
            "hook": self.hook,
            "bucket_cap_mb": 25.0 if self.bucket_cap_mb is None else self.bucket_cap_mb,
            "first_bucket_mb": 1.0 if self.bucket_cap_mb is None else self.bucket_cap_mb,
        }


def hooks_of(
    hooks: Sequence[str],
    compress: Sequence[str] = ("none",),
    error_feedback: bool = False,
    shared_memory: Sequence[str] = ("off",),
    lanes: Sequence[tuple[str, ...]] = ((),),
) -> list[str]:
    """The labels for all combinations of the axes. A hook that does not record stands for itself, once.

    Lanes exclude the other two: where those vary, lanes are combined with `none` and `off` only.

    Raises:
        UsageError: a name is not known, or the values exclude each other.
    """
    labels = []
    for hook in hooks:
        refuse_combined(hook)
        if hook not in (*NOT_OURS, *HookKind):
            known = ", ".join((*(each.value for each in HookKind), *NOT_OURS))
            raise UsageError(f"--hook {hook} is not known.", hint=f"choose among: {known}.")
        if hook in NOT_OURS or not HookKind(hook).records:
            labels.append(hook)
            continue
        vary = "none" in compress and "off" in shared_memory
        for bits, mode, names in itertools.product(compress, shared_memory, lanes):
            if names and vary and (bits, mode) != ("none", "off"):
                continue
            way = None if bits == "none" else cast(Compress, bits)
            feedback = error_feedback and way is not None
            labels.append(Averaging(HookKind(hook), way, feedback, cast(SharedMemory, mode), names).label)
    return list(dict.fromkeys(labels))


def step_cases(
    models: Sequence[str],
    hooks: Sequence[str],
    bucket_caps_mb: Sequence[float | None],
    world_sizes: Sequence[int],
    picks: Sequence[tuple[int, ...]] = ((),),
) -> list[Case]:
    """All combinations of the values as training steps, in the order of their worth.

    First comes the combination of all first values, then those that differ from it in one thing, and so on. Hooks do
    not count as such a thing: each setting is measured with all hooks before the next one, so that a budget which ends
    early still leaves hooks to compare.

    Raises:
        UsageError: a name is not known, or a number is out of its range.
    """
    hooks = [current_label(name) for name in hooks]
    _known("--arch", models, MODELS)
    _known("--hook", [each for each in hooks if from_label(each) is None], NOT_OURS)
    for cap in bucket_caps_mb:
        if cap is not None and not 0 < cap < 2**20:
            raise UsageError(f"--bucket-cap-mb {cap:g} cannot be right.", hint="give MiB, such as 0.25,1,25.")
    _check_world_sizes(world_sizes)
    # Two ranks are the smallest real case, so they stand for the others.
    ordered = sorted(dict.fromkeys(world_sizes), key=lambda n: (n != 2, n))
    axes: list[Sequence[Any]] = [models, hooks, bucket_caps_mb, ordered, picks]
    places = itertools.product(*(range(len(dict.fromkeys(axis))) for axis in axes))
    values = [list(dict.fromkeys(axis)) for axis in axes]
    found = []
    hook = 1

    def worth(place: tuple[int, ...]) -> tuple[Any, ...]:
        setting = place[:hook] + place[hook + 1 :]
        return sum(i > 0 for i in setting), sum(setting), setting, place[hook]

    for place in sorted(places, key=worth):
        chosen = [axis[i] for axis, i in zip(values, place, strict=True)]
        found.append(
            Case("step", chosen[3], chosen[4], model=chosen[0], hook=chosen[1], bucket_cap_mb=chosen[2])
        )
    return found


def allreduce_cases(
    sizes: Sequence[int],
    world_sizes: Sequence[int],
    picks: Sequence[tuple[int, ...]] = ((),),
    chunks: int = 1,
) -> list[Case]:
    """All-reduces of each size in bytes.

    Raises:
        UsageError: a size is not that of float32 values, or a number of ranks is out of its range.
    """
    for size in sizes:
        if not (4 <= size <= 2**34 and size % 4 == 0):
            raise UsageError(
                f"{size} bytes cannot be reduced as float32.", hint="give multiples of 4, up to 16G."
            )
    _check_world_sizes(world_sizes)
    return [
        Case("allreduce", n, pick, bytes=size, chunks=chunks)
        for n in dict.fromkeys(world_sizes)
        for pick in picks
        for size in dict.fromkeys(sizes)
    ]


def race_cases(
    names: Sequence[str], world_size: int, size: int, chunks: int = 8, repeat: int = 1
) -> list[Case]:
    """Each interface alone, all of them at once as they are named, and with `repeat` each one named so often.

    A name that is there twice, as in eth0,eth0, is one interface alone; all at once, it is repeated. `chunks`
    all-reduces are in flight, as DDP's buckets are.

    Raises:
        UsageError: a number is out of its range.
    """
    if not 1 <= repeat <= 8:
        raise UsageError(f"--repeat is {repeat}, but it must be from 1 to 8.")
    base = allreduce_cases([size], [world_size], chunks=chunks)[0]
    single = [names.index(name) for name in dict.fromkeys(names)]
    picks: list[tuple[int, ...]] = [(place,) for place in single]
    if len(names) > 1:
        picks.append(tuple(range(len(names))))
    if repeat > 1:
        picks += [(place,) * repeat for place in single]
    # A list such as eth0,eth0 is already what --repeat 2 asks for.
    by_names = {tuple(names[place] for place in pick): pick for pick in picks}
    return [replace(base, picks=pick) for pick in by_names.values()]


def _known(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"{what} {name} is not known.", hint=f"choose among: {', '.join(known)}.")


def _check_world_sizes(world_sizes: Sequence[int]) -> None:
    for n in world_sizes:
        if not 1 <= n <= 64:
            raise UsageError(
                f"{n} ranks on one machine cannot be measured.", hint="give 1 to 64, such as 1,2,4."
            )
