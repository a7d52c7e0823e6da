"""Steps of a script's optimizers, whose classes may compare by value."""

from __future__ import annotations

import gc
import os
from types import SimpleNamespace
from typing import Any

import torch

from pyddpdiag.integrations.watched import Watched
from pyddpdiag.record.identities import Identities


class ByValue(torch.optim.SGD):
    """One without a hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue) and self.defaults == other.defaults


class Marks:
    """Counts steps."""

    open = True
    signs = None
    ended = 0

    def begin(self) -> None:
        pass

    def end(self) -> None:
        self.ended += 1


def watched_with(marks: object) -> Any:
    watched: Any = Watched(None, {})
    watched._process = os.getpid()
    watched.session = SimpleNamespace(
        steps=marks, recorder=SimpleNamespace(modules=SimpleNamespace(closed=False))
    )
    return watched


def optimizer() -> ByValue:
    return ByValue([torch.nn.Parameter(torch.ones(1))], 0.1)


def test_a_step_ends_with_the_last_of_its_optimizers() -> None:
    marks = Marks()
    watched, one, other = watched_with(marks), optimizer(), optimizer()
    for each, ended in ((one, 1), (other, 2)):
        watched.stepped(each)
        assert marks.ended == ended
    watched._stepped.clear()  # a pass begins
    watched.stepped(one)
    assert marks.ended == 2
    watched.stepped(other)
    assert marks.ended == 3
    watched._stepped.clear()
    watched.stepped(one)
    watched.stepped(one)  # more often than the other
    assert marks.ended == 4 and list(watched._optimizers) == [id(one)]
    del one, each
    gc.collect()
    assert not watched._optimizers and not watched._stepped


def test_an_error_of_ours_ends_no_step_of_an_optimizer() -> None:
    watched_with(None).stepped(optimizer())


def test_a_set_by_identity_needs_no_hash_and_keeps_nothing_alive() -> None:
    known: Identities[ByValue, int] = Identities()
    one, other = optimizer(), optimizer()
    known.add(one, 0)
    assert id(one) in known.known and id(other) not in known.known
    known.add(one, 2)
    assert known.items() == [(one, 2)] and len(known.known) == 1
    del one
    gc.collect()
    assert not known.known
    known.add(other, 0)
    known.discard(other)
    assert not known.known
