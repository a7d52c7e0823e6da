"""With which operation and type of element a rank's script reduced: a part of its sidecar.

Gloo compares neither between ranks: one that sums and one that takes the maximum both end well, with wrong numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyddpdiag.model.untrusted import needed_text, needed_whole

GROUPS: Final = 8
"""Process groups, each with its operations, that are kept."""

CALLS: Final = 128
"""So many of the first calls are kept one by one, and of the last."""

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
"""One for each kind of call, so that a call is a letter of a text."""

_NAME_LIMIT: Final = 300


@dataclass(frozen=True)
class ReductionKind:
    """What a call reduced with (`SUM`), elements of which type (`float32`), and the first line of the script to do so.

    `where` is empty where it is not known. `calls`: how many there were.
    """

    op: str
    dtype: str
    where: str = ""
    calls: int = 0

    @property
    def said(self) -> str:
        """In words."""
        return f"{self.op} of {self.dtype}"


@dataclass(frozen=True)
class Reductions:
    """The calls of one operation (`all_reduce`, `reduce`) in one process group, in their order.

    Attributes:
        group: its name.
        operation: called by the script; DDP's own are no part of it.
        calls: how many.
        kinds: that were seen, at most as many as there are `LETTERS`; more are counted with the last one.
        first, last: the kinds of the first and of the last calls, as letters.
        first_steps, last_steps: the steps in which they were called.
    """

    group: str
    operation: str
    calls: int
    kinds: tuple[ReductionKind, ...]
    first: str = ""
    last: str = ""
    first_steps: tuple[int, ...] = ()
    last_steps: tuple[int, ...] = ()

    def at(self, call: int) -> tuple[ReductionKind, int] | None:
        """The kind of this call, counted from 0, and its step; None: not kept."""
        behind = call - (self.calls - len(self.last))
        letter, steps = (self.last[behind], self.last_steps) if 0 <= behind < len(self.last) else ("", ())
        place = behind
        if call < len(self.first):
            letter, steps, place = self.first[call], self.first_steps, call
        number = LETTERS.find(letter) if letter else -1
        return (self.kinds[number], steps[place]) if 0 <= number < len(self.kinds) else None


def reductions_to_json(one: Reductions) -> dict[str, Any]:
    """The entry of a sidecar."""
    return {
        "group": one.group,
        "operation": one.operation,
        "calls": one.calls,
        "kinds": [
            {"op": kind.op, "dtype": kind.dtype, "where": kind.where, "calls": kind.calls}
            for kind in one.kinds
        ],
        "first": one.first,
        "last": one.last,
        "first_steps": list(one.first_steps),
        "last_steps": list(one.last_steps),
    }


def reductions_from_json(entry: Mapping[str, Any]) -> Reductions:
    """One entry.

    Raises:
        TypeError, ValueError, KeyError: it is no such entry.
    """
    first, first_steps = _calls(entry["first"], entry["first_steps"])
    last, last_steps = _calls(entry["last"], entry["last_steps"])
    return Reductions(
        group=_text(entry["group"]),
        operation=_text(entry["operation"]),
        calls=needed_whole(entry["calls"]),
        kinds=tuple(
            ReductionKind(
                _text(one["op"]), _text(one["dtype"]), _text(one["where"]), needed_whole(one["calls"])
            )
            for one in entry["kinds"][: len(LETTERS)]
        ),
        first=first,
        last=last,
        first_steps=first_steps,
        last_steps=last_steps,
    )


def _calls(letters: Any, steps: Any) -> tuple[str, tuple[int, ...]]:
    kept = needed_text(letters, CALLS)
    found = tuple(needed_whole(step) for step in steps[:CALLS])
    if len(found) != len(kept):
        raise ValueError("each call has a step")
    return kept, found


def _text(value: Any) -> str:
    return needed_text(value, _NAME_LIMIT)


__all__ = [
    "CALLS",
    "GROUPS",
    "LETTERS",
    "ReductionKind",
    "Reductions",
    "reductions_from_json",
    "reductions_to_json",
]
