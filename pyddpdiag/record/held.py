"""What objects of the script's own classes hold, read without running a line of these classes.

A property, an overridden `__len__` or `values()` may draw random numbers, count its calls or fail: a look from outside
must not change a training by that.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import torch

DEPTH: Final = 8
"""Of parts within parts."""

MOST: Final = 4096
"""Of the parts of one object, the first ones."""


def attribute(owner: object, *names: str) -> Any:
    """The first of these attributes that the object itself holds and that is not None; None: it holds none."""
    mine = _own(owner)
    return next((found for name in names if (found := mine.get(name)) is not None), None)


def parts_of(whole: object) -> Iterable[Any] | None:
    """What a dictionary, a list, a tuple, an instance of a dataclass or of their subclasses holds; None: it is none."""
    kind = type(whole)
    if issubclass(kind, dict):
        return dict.values(whole)  # type: ignore[arg-type]
    if issubclass(kind, list):
        return list.__iter__(whole)  # type: ignore[arg-type]
    if issubclass(kind, tuple):
        return tuple.__iter__(whole)  # type: ignore[arg-type]
    if UserDict in kind.__mro__:
        inner = attribute(whole, "data")
        return dict.values(inner) if issubclass(type(inner), dict) else None
    if any("__dataclass_fields__" in vars(base) for base in kind.__mro__):
        return _own(whole).values()
    return None


def tensors_in(whole: object, depth: int = DEPTH) -> Iterator[torch.Tensor]:
    """The tensors in what a module returned."""
    if issubclass(type(whole), torch.Tensor):
        yield whole  # type: ignore[misc]
    elif depth and (parts := parts_of(whole)) is not None:
        for part in islice(parts, MOST):
            yield from tensors_in(part, depth - 1)


def is_plain(tensor: object) -> bool:
    """Whether it is a tensor of torch's own: what one of another class does when it is asked is not known."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _own(owner: object) -> dict[str, Any]:
    try:
        found: dict[str, Any] = object.__getattribute__(owner, "__dict__")
    except AttributeError:  # all of it is in slots
        return {}
    return found
