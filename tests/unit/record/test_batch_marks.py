"""Checksums of batches: which are the same, which differ, and which cannot be read."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from pyddpdiag.model.fields import from_json, to_json
from pyddpdiag.model.training import MOST, Training
from pyddpdiag.record.batch_marks import GivenBatches, batch_mark


@dataclass
class _Texts:
    ids: torch.Tensor
    mask: torch.Tensor | None = None


def _batch(seed: int, *size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "shape",
    [
        lambda x: x,
        lambda x: (x, torch.ones(4)),
        lambda x: {"image": x.double(), "name": ["a", "b"], "scale": 0.5},
        lambda x: [UserDict(x=x)],
        lambda x: _Texts(x),
        lambda x: x.t(),  # in another order than in memory
        lambda x: x[:, ::2],
        lambda x: x.bfloat16().expand(3, *x.shape),
        lambda x: [x, *range(5000), object()],
    ],
)
def test_batches_of_every_shape_are_told_apart(shape: Any) -> None:
    first, second = _batch(1, 64, 48), _batch(2, 64, 48)
    assert batch_mark(shape(first)) == batch_mark(shape(first.clone())) != 0
    assert batch_mark(shape(first)) != batch_mark(shape(second)) != 0


def test_what_lies_between_the_values_of_a_view_is_no_part_of_it() -> None:
    values = _batch(1, 6, 4)
    other = values.clone()
    other[:, 1::2] += 1
    assert batch_mark(values[:, ::2]) == batch_mark(other[:, ::2]) == batch_mark(values[:, ::2].contiguous())


@pytest.mark.parametrize(
    "batch",
    [
        None,
        "text",
        torch.empty(0),
        (torch.ones(9), object()),
        torch.eye(4).to_sparse(),
        torch.ones(9, device="meta"),
        [[[[[[torch.ones(9)]]]]]],
    ],
)
def test_what_cannot_be_read_has_no_mark(batch: object) -> None:
    assert batch_mark(batch) == 0


def test_a_module_is_looked_at_ever_more_rarely() -> None:
    given = GivenBatches()
    for number in range(40):
        given.look(((torch.full((20,), number),), {}))
    assert list(given.marks()) == [*range(1, 11), 16, 17, 18, 32, 33, 34]
    assert len(set(given.marks().values())) == 16 and 0 not in given.marks().values()
    given.look(((torch.ones(3),), {}))
    assert given.values() == dict.fromkeys(given.marks(), 20)
    seen = Training(batches={0: given.marks()}, batch_values={0: given.values()})
    assert from_json(Training, to_json(seen)) == seen


def test_batches_of_few_values_may_be_alike_by_chance() -> None:
    given = GivenBatches()
    given.look(((torch.ones(15),), {}))
    assert given.marks() == {1: 0} and given.values() == {1: 15}


@pytest.mark.parametrize("raw", [5, {"0": 5, "x": {}}, {"0": {"1": "xyz", "2": 7, "3": None, "4": "f"}}])
def test_any_entry_of_a_sidecar_is_read(raw: object) -> None:
    assert sum(map(len, from_json(Training, {"batches": raw}).batches.values())) == ("4" in str(raw))


def test_a_sidecar_is_bounded() -> None:
    raw = {"batches": {str(number): {str(at): "1" for at in range(1000)} for number in range(1000)}}
    kept = from_json(Training, raw).batches
    assert len(kept) == 2 * MOST and all(len(marks) == 2 * MOST for marks in kept.values())
