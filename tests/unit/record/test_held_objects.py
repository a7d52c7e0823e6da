"""What objects of somebody's own classes hold, read without their code."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyddpdiag.model.raised import FORWARDS
from pyddpdiag.record.batch_marks import batch_mark
from pyddpdiag.record.held import attribute, tensors_in
from pyddpdiag.record.raises import Raises

ONE, TWO = torch.arange(32.0), torch.ones(2, 2)


def _refuses(*_: object, **__: object) -> NoReturn:
    raise AssertionError("code of the script ran")


def _hostile(base: type) -> type:
    names = (
        *("__len__", "__iter__", "__getitem__", "__getattribute__", "__str__", "__repr__"),
        *("__eq__", "__hash__"),
    )
    return type(
        "Hostile", (base,), {**dict.fromkeys((*names, "values", "keys", "__class_getitem__"), _refuses)}
    )


Pair = namedtuple("Pair", "first second")


@dataclass
class Node:
    value: torch.Tensor
    parent: Any = None
    late: Any = field(init=False)


@dataclass(frozen=True)
class Slotted:
    __slots__ = ("value",)
    value: torch.Tensor


class Anything:
    """Has each attribute that it is asked for, or fails."""

    def __getattr__(self, name: str) -> Any:
        return {}[name]


Make = Callable[[], object]
WHOLES: list[Make] = [
    lambda: {"one": ONE, "two": [TWO]},
    lambda: OrderedDict(one=ONE, two=(TWO,)),
    lambda: UserDict(one=ONE, two=TWO),
    lambda: Pair(ONE, {"two": TWO}),
    lambda: Node(ONE, TWO),
    lambda: _hostile(dict)(one=ONE, two=TWO),
    lambda: _hostile(list)([ONE, TWO]),
    lambda: _hostile(tuple)([ONE, TWO]),
]
OTHERS: list[Make] = [
    *[Anything, _hostile(object), lambda: Slotted(ONE), lambda: 3, lambda: None, lambda: "text"],
    lambda: iter([ONE]),
]


# Made in the test: pytest asks its parameters for their names.
@pytest.mark.parametrize("make", WHOLES)
def test_tensors_are_found(make: Make) -> None:
    found = list(tensors_in(make()))
    assert len(found) == 2 and found[0] is ONE and found[1] is TWO


@pytest.mark.parametrize("make", OTHERS)
def test_of_other_classes_nothing_is_read(make: Make) -> None:
    assert list(tensors_in(make())) == [] and attribute(make(), "first") is None


def test_what_refers_to_itself_comes_to_an_end() -> None:
    node = Node(ONE)
    node.parent = [node]
    assert 1 <= len(list(tensors_in(node))) <= 8


class Watching(TorchDispatchMode):
    """What a mode of the script's own sees."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _refuses()


class Strict(torch.Tensor):
    """A tensor that allows nothing."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        _refuses()


BATCHES: list[tuple[Make, bool]] = [
    (lambda: [ONE, "a", 1, 2.5, True, None], True),
    (lambda: _hostile(dict)(one=ONE), True),
    (lambda: [ONE, _hostile(str)("text")], True),
    (lambda: [ONE, torch.Tensor._make_subclass(Strict, TWO)], False),
    (lambda: [ONE, Anything()], False),
]


@pytest.mark.parametrize("make, is_read", BATCHES)
def test_a_batch_is_read_and_nothing_of_the_script_runs(make: Make, is_read: bool) -> None:
    batch = make()
    with Watching():
        mark = batch_mark(batch, least=16)
    assert bool(mark) == is_read


def test_a_lazy_batch_is_not_made() -> None:
    class Lazy(dict[str, Callable[[], torch.Tensor]]):
        def values(self) -> Iterator[torch.Tensor]:  # type: ignore[override]
            _refuses()

    assert batch_mark(Lazy(one=lambda: ONE)) == 0


def test_what_forward_passes_raise_is_kept_with_its_line() -> None:
    heard: list[None] = []
    seen = Raises(lambda: heard.append(None))
    for step in range(FORWARDS + 2):
        try:
            _refuses()
        except AssertionError as error:
            seen.note(error, step)
    first = seen.raised()[0]
    assert len(seen.raised()) == len(heard) == FORWARDS and (first.step, first.error) == (0, "AssertionError")
    assert first.where.rpartition("/")[2].startswith("test_held_objects.py:") and first.sound
