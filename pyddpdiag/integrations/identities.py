"""Objects by identity: those of a script may compare by value, or have no hash, or one that fails."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class Identities(Generic[T]):
    """A set of objects, each with a number, that keeps none of them alive."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[T], int]] = {}
        """By their ids: a step asks it itself."""

    def add(self, one: T, number: int = 0) -> None:
        """Adds it, or gives it another number."""
        key, known = id(one), self.known
        # The reference ends before another object can have the id.
        known[key] = (weakref.ref(one, lambda _: known.pop(key, None)), number)

    def discard(self, one: object) -> None:
        """Removes it, if it is there."""
        self.known.pop(id(one), None)

    def items(self) -> list[tuple[T, int]]:
        """All that are alive, with their numbers."""
        return [(one, number) for ref, number in list(self.known.values()) if (one := ref()) is not None]
