"""The option --lanes, wherever a command has it."""

from __future__ import annotations


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


__all__ = ["lanes_of"]
