"""The values of the options that name cures, wherever a command has them."""

from __future__ import annotations

from enum import Enum


class Shared(str, Enum):
    """Modes of shared memory."""

    AUTO = "auto"
    REQUIRE = "require"


class Half(str, Enum):
    """Types of 16 bits in which gradients travel."""

    BF16 = "bf16"
    FP16 = "fp16"


def lanes_of(text: str | None, option: str = "--lanes") -> tuple[str, ...]:
    """The lanes in NAME,NAME or NAME=MBIT,NAME=MBIT, each over an interface that this machine has; None: none.

    Raises:
        UsageError: they cannot be used, with the reason.
    """
    from pyddpdiag.paths import lanes
    from pyddpdiag.ranks import interfaces

    if text is None:
        return ()
    names = tuple(text.split(","))
    interfaces.check(tuple(lane.interface for lane in lanes.parse(names)), f"from {option}")
    return names


__all__ = ["Half", "Shared", "lanes_of"]
