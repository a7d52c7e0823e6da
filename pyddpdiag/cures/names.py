"""Cures as `--cures` names them: NAME, NAME=VALUE, and several at once as NAME+NAME=VALUE. Without torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pyddpdiag.errors import UsageError

_JOINED: Final = ("interface",)
"""Cures whose value may hold a +: several interfaces."""


@dataclass(frozen=True)
class Named:
    """A cure with its value; empty: what fits the run."""

    name: str
    value: str = ""


def together_of(text: str, known: Collection[str], hint: str) -> tuple[Named, ...]:
    """The cures in `NAME[=VALUE][+NAME[=VALUE]...]`, which are on together.

    Args:
        text: as the user wrote it.
        known: the names that there are.
        hint: of the error for any other.

    Raises:
        UsageError: there is no such cure, or one is named twice.
    """
    pieces: list[str] = []
    for piece in text.split("+"):
        name = piece.partition("=")[0].strip()
        if pieces and name not in known and pieces[-1].partition("=")[0].strip() in _JOINED:
            pieces[-1] += "+" + piece
        else:
            pieces.append(piece)
    found = []
    for piece in pieces:
        name, _, value = (word.strip() for word in piece.partition("="))
        if name not in known:
            raise UsageError(f"there is no cure '{name}' to try.", hint=hint)
        found.append(Named(name, value))
    kinds = [_KIND.get(each.name, each.name) for each in found]
    if len(set(kinds)) < len(kinds):
        raise UsageError(f"{text} names one thing twice.", hint="give each as a cure of its own, by commas.")
    return tuple(found)


_KIND: Final = {"compress-fp16": "compress", "error-feedback": "compress"}

__all__ = ["Named", "together_of"]
