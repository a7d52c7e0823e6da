"""The ways to average gradients, by their axes: named alike in training, benchmarks and result files. Without torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, get_args

from pyddpdiag.errors import UsageError
from pyddpdiag.paths.options import Compress, SharedMemory, path_request


class HookKind(str, Enum):
    """Who averages a bucket, and whether that is recorded."""

    NATIVE = "native"
    TIMED = "timed"
    PLAIN = "plain"
    BUILTIN = "builtin"

    @property
    def records(self) -> bool:
        """Whether this hook writes a trace."""
        return self in (HookKind.NATIVE, HookKind.TIMED)


@dataclass(frozen=True)
class Averaging:
    """One way to average gradients.

    Attributes:
        hook: `native` is `recorder.attach`, `timed` a hook that is registered from Python; both record. `plain` is DDP
            without a hook, `builtin` torch's own.
        compress, error_feedback, shared_memory, lanes: as in `Recorder.attach`; only with a hook that records.

    Raises:
        UsageError: there is no such value, or the values exclude each other.
    """

    hook: HookKind = HookKind.NATIVE
    compress: Compress | None = None
    error_feedback: bool = False
    shared_memory: SharedMemory = "off"
    lanes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _ = self.path  # checks it
        if self.path and not self.hook.records:
            raise UsageError(
                f"--hook {self.hook.value} averages over Gloo, in the gradients' own type.",
                hint="--compress, --error-feedback, --shared-memory and --lanes need --hook native or --hook timed.",
            )

    @property
    def path(self) -> dict[str, Any]:
        """What `Recorder.attach` and `Recorder.hook` get; empty: their defaults."""
        return path_request(self.compress, self.error_feedback, self.shared_memory, self.lanes).arguments

    @property
    def exact(self) -> bool:
        """Whether gradients travel as they are, and are not rounded to 16 bits."""
        return self.compress is None

    @property
    def label(self) -> str:
        """Its name in result files and tables, such as `native+bf16` or `native+lanes=eth0,eth1`."""
        parts = [
            self.hook.value,
            self.compress or "",
            "feedback" if self.error_feedback else "",
            _SHARED[self.shared_memory],
            _LANES + ",".join(self.lanes) if self.lanes else "",
        ]
        return "+".join(filter(None, parts))


_LANES: Final = "lanes="
_SHARED: Final[dict[str, str]] = {"off": "", "auto": "shared", "require": "required"}
# Names that stood for two options at once; result files still hold them.
_COMBINED: Final = {
    "native_bf16": Averaging(compress="bf16"),
    "bf16": Averaging(compress="bf16"),
    "fp16": Averaging(compress="fp16"),
    "bf16_feedback": Averaging(compress="bf16", error_feedback=True),
    "timed_bf16": Averaging(HookKind.TIMED, compress="bf16"),
    "timed_fp16": Averaging(HookKind.TIMED, compress="fp16"),
    "shared": Averaging(shared_memory="auto"),
}


def current_label(name: str) -> str:
    """The label for a name that may be one of the combined ones; others are returned unchanged."""
    return _COMBINED[name].label if name in _COMBINED else name


def from_label(label: str) -> Averaging | None:
    """The reverse of `Averaging.label`; None: there is no such way."""
    hook, over_lanes, names = label.partition(f"+{_LANES}")
    way = _labels().get(hook)
    if way is None or not over_lanes:
        return way
    try:
        return replace(way, lanes=tuple(names.split(",")))
    except UsageError:
        return None


@functools.cache
def _labels() -> dict[str, Averaging]:
    ways = [Averaging(HookKind.PLAIN), Averaging(HookKind.BUILTIN)]
    bits: list[tuple[Compress | None, bool]] = [(None, False)]
    bits += [(each, feedback) for each in get_args(Compress) for feedback in (False, True)]
    ways += [
        Averaging(hook, compress, feedback, shared)
        for hook in (HookKind.NATIVE, HookKind.TIMED)
        for compress, feedback in bits
        for shared in get_args(SharedMemory)
    ]
    return {way.label: way for way in ways}


def refuse_combined(name: str) -> None:
    """Refuses a combined name as the value of --hook.

    Raises:
        UsageError: it is one; the hint has the options in its place.
    """
    if name not in _COMBINED:
        return
    way = _COMBINED[name]
    options = [f"--hook {way.hook.value}"]
    options += [f"--compress {way.compress}"] if way.compress else []
    options += ["--error-feedback"] if way.error_feedback else []
    options += [f"--shared-memory {way.shared_memory}"] if way.shared_memory != "off" else []
    raise UsageError(f"--hook {name} stands for several options.", hint=f"give {' '.join(options)}.")
