"""With which operation and type of element a rank's script reduced: a part of its sidecar.

Gloo compares neither between ranks: one that sums and one that takes the maximum both end well, with wrong numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pyddpdiag.model.fields import Limit

GROUPS: Final = 8
"""Process groups, each with its operations, that are kept."""

CALLS: Final = 128
"""So many of the first calls are kept one by one, and of the last."""

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
"""One for each kind of call, so that a call is a letter of a text."""


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
    kinds: Annotated[tuple[ReductionKind, ...], Limit(len(LETTERS))]
    first: Annotated[str, Limit(CALLS)] = ""
    last: Annotated[str, Limit(CALLS)] = ""
    first_steps: Annotated[tuple[int, ...], Limit(CALLS)] = ()
    last_steps: Annotated[tuple[int, ...], Limit(CALLS)] = ()

    @property
    def sound(self) -> bool:
        """Whether each call has a step."""
        return (len(self.first), len(self.last)) == (len(self.first_steps), len(self.last_steps))

    def at(self, call: int) -> tuple[ReductionKind, int] | None:
        """The kind of this call, counted from 0, and its step; None: not kept."""
        behind = call - (self.calls - len(self.last))
        letter, steps = (self.last[behind], self.last_steps) if 0 <= behind < len(self.last) else ("", ())
        place = behind
        if call < len(self.first):
            letter, steps, place = self.first[call], self.first_steps, call
        number = LETTERS.find(letter) if letter else -1
        return (self.kinds[number], steps[place]) if 0 <= number < len(self.kinds) else None
