"""Which part of a step, or of its change, matters: one rule for findings, low GPU use and comparisons of sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=str)


def largest(parts: Mapping[Name, float]) -> Name:
    """The part that takes longest; the first of equals. There must be one."""
    return max(parts, key=lambda name: parts[name])


def mover(changes: Mapping[Name, float], change: float) -> Name | None:
    """The part that changed most in the direction of the whole; None if none did."""
    along = {name: moved if change > 0 else -moved for name, moved in changes.items()}
    if not along or max(along.values()) <= 0:
        return None
    return largest(along)
