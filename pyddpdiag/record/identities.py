"""Objects by identity: those of a script may compare by value, or have no hash, or one that fails."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Identities(Generic[Key, Value]):
    """Objects with a value each, that keeps none of the objects alive."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[Key], Value]] = {}
        """By their ids: a step asks it itself."""

    def add(self, one: Key, value: Value) -> None:
        """Adds it, or gives it another value."""
        key, known = id(one), self.known
        # The reference ends before another object can have the id.
        known[key] = (weakref.ref(one, lambda _: known.pop(key, None)), value)

    def get(self, one: object) -> Value | None:
        """Its value; None: it is not there."""
        held = self.known.get(id(one))
        return None if held is None else held[1]

    def discard(self, one: object) -> None:
        """Removes it, if it is there."""
        self.known.pop(id(one), None)

    def items(self) -> list[tuple[Key, Value]]:
        """All that are alive, with their values."""
        return [(one, value) for ref, value in list(self.known.values()) if (one := ref()) is not None]
