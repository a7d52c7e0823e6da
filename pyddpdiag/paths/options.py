"""What a user asks for of a bucket's path, the same for `attach`, `hook` and the named hooks. Without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pyddpdiag.errors import UsageError
from pyddpdiag.paths import lanes as lane_names

Compress = Literal["bf16", "fp16"]
SharedMemory = Literal["off", "auto", "require"]
_COMPRESSIONS: Final = (None, "bf16", "fp16")
_MODES: Final = ("off", "auto", "require")


@dataclass(frozen=True)
class PathRequest:
    """How a bucket is to be summed, checked. Over a group, `setup.prepare` makes a decision of it."""

    compress: Compress | None = None
    error_feedback: bool = False
    shared_memory: SharedMemory = "off"
    lanes: tuple[str, ...] = ()

    @property
    def needs_setup(self) -> bool:
        """Whether the ranks must meet before the first bucket."""
        return self.compress is not None or self.shared_memory != "off" or bool(self.lanes)

    @property
    def arguments(self) -> dict[str, Any]:
        """What `Recorder.attach` and `Recorder.hook` get; empty: their defaults."""
        if not self.needs_setup:
            return {}
        given = asdict(self)
        if not self.lanes:
            del given["lanes"]
        return given


def path_request(
    compress: Compress | None = None,
    error_feedback: bool = False,
    shared_memory: SharedMemory = "off",
    lanes: Sequence[str] = (),
) -> PathRequest:
    """What a user asks for.

    Raises:
        UsageError: there is no such compression or mode of shared memory, or error feedback was asked for
            without compression; or lanes that cannot be, or together with one of the others.
    """
    if compress not in _COMPRESSIONS:
        raise UsageError(
            f"compress must be None, 'bf16' or 'fp16', not {compress!r}.",
            hint="both halve what travels; bf16 has the range of float32, fp16 three more bits of precision.",
        )
    if error_feedback and compress is None:
        raise UsageError("error_feedback needs compress='bf16' or 'fp16': nothing is lost without it.")
    require_mode(shared_memory)
    if not isinstance(lanes, str) and len(lanes) == 0:
        return PathRequest(compress, error_feedback, shared_memory)
    lane_names.parse(lanes)
    if compress is not None or shared_memory != "off":
        raise UsageError(
            f"lanes cannot be combined with {'compress' if compress is not None else 'shared_memory'}.",
            hint="lanes carry gradients as they are, over several interfaces; compress halves them on one.",
        )
    return PathRequest(lanes=tuple(lanes))


def require_mode(mode: str) -> None:
    """Checks a value of `shared_memory=...`.

    Raises:
        UsageError: there is no such mode.
    """
    if mode not in _MODES:
        raise UsageError(
            f"shared_memory must be 'off', 'auto' or 'require', not {mode!r}.",
            hint="'auto' uses shared memory where all ranks have it, 'require' fails where they do not.",
        )
