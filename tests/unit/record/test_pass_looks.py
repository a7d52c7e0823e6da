"""Of what gradients an optimizer's steps consist, by how their backward passes began."""

from __future__ import annotations

import weakref

import pytest
import torch

from pyddpdiag.model.clearing import Clearing
from pyddpdiag.record.pass_looks import Begun, PassLooks

FRESH, ADDS = Begun(True, False, "a"), Begun(False, False, None)
LOCAL = Begun(True, True, "a")


@pytest.mark.parametrize(
    ("passes", "seen"),
    [
        ([FRESH], (1,)),
        ([ADDS], (1, 1)),  # zero_grad is missing
        ([LOCAL, Begun(False, True, None), ADDS], (1,)),  # accumulates
        ([Begun(False, True, None), ADDS], (1, 1)),
        ([LOCAL, LOCAL, FRESH], (1, 0, 1)),  # zero_grad in each pass
        ([LOCAL, Begun(True, False, "b")], (1,)),  # SAM: the weights are elsewhere
        ([FRESH, FRESH], (1, 0, 0, 1)),  # each average is used
        ([ADDS, FRESH, ADDS], (1, 0, 0, 1)),  # a discriminator, after the generator's pass
        ([FRESH, None], ()),  # not all of its passes were looked at
    ],
)
def test_how_gradients_were_cleared(passes: list[Begun | None], seen: tuple[int, ...]) -> None:
    looks, reduced = PassLooks(), 0
    for times in (1, 2):
        for one in passes:
            if one is not None:
                looks.note(one)
            if one is not None and one.local:
                looks.note_local(reduced)
            else:
                reduced += 1
        looks.steps(reduced)
        assert looks.clearing == Clearing(*(times * each for each in seen))


def test_a_pass_begins_without_gradients_that_it_could_add_to() -> None:
    """By those that have been there, small and dense: others say nothing."""
    used, unused = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    rows, wide = torch.nn.EmbeddingBag(9, 4, sparse=True, mode="sum"), torch.nn.Linear(4, 5000)
    parameters = [*unused.parameters(), *rows.parameters(), *wide.parameters(), *used.parameters()]
    looks = PassLooks()
    seen = [looks.begins(local=False)]
    for clears in (False, None, False, True):
        between = used(rows(torch.tensor([[1, 2]]))).sum() + wide(torch.ones(4)).sum()
        between.backward()
        looks.steps(1, map(weakref.ref, parameters))
        if clears is not None:
            for one in (used, rows, wide):
                one.zero_grad(set_to_none=clears)
        seen.append(looks.begins(local=False))
    assert seen == [None, True, False, True, True]


def test_nothing_is_known_where_no_gradient_can_be_read_in_no_time() -> None:
    wide, looks = torch.nn.Linear(100, 50, bias=False), PassLooks()
    wide(torch.ones(100)).sum().backward()
    looks.steps(1, map(weakref.ref, wide.parameters()))
    assert looks.begins(local=False) is None
