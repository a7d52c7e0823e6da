"""Evaluations: what a recorder sees of passes without gradients, by checksums that tell batches apart."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from pyddpdiag.model.fields import from_json, to_json
from pyddpdiag.model.training import MOST, Evaluated, Training
from pyddpdiag.record.batch_marks import GivenBatches, batch_mark
from pyddpdiag.record.evaluations import Evaluations
from pyddpdiag.system.clock import monotonic_ns

DATA = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))


def _pass(seen: Evaluations, loader: DataLoader[Any], batches: int = 1000) -> None:
    iterator = iter(loader)
    for _ in range(batches):
        since = monotonic_ns()
        try:
            batch = next(iterator)
        except StopIteration:
            seen.ended(iterator)
            return
        seen.took(iterator, batch, since)


def _evaluated(*loaders: DataLoader[Any]) -> tuple[Evaluated, ...]:
    seen = Evaluations(lambda: None)
    for loader in loaders:
        _pass(seen, loader)
    return seen.evaluated()


def test_a_pass_has_its_loader_its_line_its_time_and_a_mark_of_its_batches() -> None:
    loader = DataLoader(DATA, batch_size=8)
    began = monotonic_ns()
    (one,) = _evaluated(loader, loader)
    assert (one.loader.sampler, one.loader.length, one.loader.batch_size) == ("SequentialSampler", 20, 8)
    assert not one.loader.distributed
    assert one.passes == 2 and 0 < one.seconds < (monotonic_ns() - began) / 1e9
    assert one.where.rpartition("/")[2].startswith("test_evaluations.py:")
    assert len(one.marks) == 2 and one.marks[0] == one.marks[1] != 0


def _last_differs() -> Dataset[Any]:
    values = DATA.tensors[0].clone()
    values[16] += 1
    return TensorDataset(values, DATA.tensors[1])


@pytest.mark.parametrize(
    "other",
    [
        lambda: DataLoader(_last_differs(), batch_size=8),
        lambda: DataLoader(DATA, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(1)),
        lambda: DataLoader(DATA, batch_size=8, sampler=DistributedSampler(DATA, 2, 1, shuffle=False)),
    ],
)
def test_other_batches_have_another_mark(other: Callable[[], DataLoader[Any]]) -> None:
    (mine,), (theirs,) = _evaluated(DataLoader(DATA, batch_size=8)), _evaluated(other())
    assert mine.marks[0] != theirs.marks[0]


def test_pictures_with_a_dark_edge_are_told_apart() -> None:
    """The first 1024 values of each batch are the same then."""
    marks = []
    for seed in (1, 2):
        pictures = torch.zeros(8, 3, 64, 64)
        pictures[:, :, 16:48, 16:48] = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
        (one,) = _evaluated(DataLoader(TensorDataset(pictures), batch_size=8))
        marks.append(one.marks)
    assert marks[0] != marks[1] and (0,) not in marks


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.uint8, torch.complex64, torch.float64])
def test_values_of_every_type_are_told_apart(dtype: torch.dtype) -> None:
    marks = set()
    for value in (0, 1):
        batches: list[Any] = [
            {"name": "x", "ids": torch.full((20, 3), value, dtype=dtype)[each]} for each in range(20)
        ]
        (one,) = _evaluated(DataLoader(batches, batch_size=5))  # type: ignore[arg-type]
        marks |= set(one.marks)
    assert len(marks) == 2 and 0 not in marks


@pytest.mark.parametrize("values", [["a", "b"], [torch.empty(0)] * 2, [torch.eye(2).to_sparse()] * 2])
def test_batches_that_cannot_be_read_have_no_mark(values: list[Any]) -> None:
    (one,) = _evaluated(DataLoader(values, batch_size=None))  # type: ignore[arg-type]
    assert (one.passes, one.marks) == (1, (0,))


def test_a_pass_that_is_broken_off_or_has_no_indices_is_none() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    seen = Evaluations(lambda: None)
    _pass(seen, DataLoader(DATA, batch_size=8), batches=2)
    _pass(seen, DataLoader(Stream()))
    assert seen.evaluated() == ()
    # The broken one does not keep a whole one from being seen.
    _pass(seen, DataLoader(DATA, batch_size=8))
    assert len(seen.evaluated()) == 1


def test_two_loaders_side_by_side_are_one_evaluation() -> None:
    seen = Evaluations(lambda: None)
    first, second = (iter(DataLoader(DATA, batch_size=10)) for _ in range(2))
    for _ in range(2):
        for iterator in (first, second):
            seen.took(iterator, next(iterator), monotonic_ns())
    for iterator in (first, second):
        seen.ended(iterator)
    assert [one.passes for one in seen.evaluated()] == [1]


def test_a_loader_with_properties_that_fail_ends_no_evaluation() -> None:
    class Broken:
        _num_yielded = 1

        @property
        def _index_sampler(self) -> object:
            raise RuntimeError("not now")

    seen, broken = Evaluations(lambda: None), Broken()
    seen.took(broken, torch.ones(2), 1)
    seen.ended(broken)
    assert seen.evaluated() == ()


def test_what_is_kept_is_bounded_and_said_at_powers_of_two() -> None:
    said: list[int] = []
    seen = Evaluations(lambda: said.append(1))
    for length in range(1, MOST + 10):
        _pass(seen, DataLoader(TensorDataset(torch.ones(length)), batch_size=8))
    assert len(seen.evaluated()) == MOST == len(said)
    for _ in range(2 * MOST):
        _pass(seen, DataLoader(TensorDataset(torch.ones(1)), batch_size=8))
    assert len(seen.evaluated()[0].marks) == MOST
    assert len(said) == MOST + 6  # after 2, 4, 8, 16, 32 and 64


def test_the_sidecar_keeps_it() -> None:
    training = Training(evaluated=_evaluated(DataLoader(DATA, batch_size=8)))
    raw = to_json(training)
    assert from_json(Training, raw) == training
    for bad in (
        *[{"seconds": -1.0}, {"seconds": "nan"}, {"seconds": 1e300}, {"passes": "x"}],
        *[{"passes": 0}, {"marks": 5}, {"where": None}],
    ):
        assert from_json(Training, {"evaluations": [{**raw["evaluations"][0], **bad}]}).evaluated == ()


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
        *[None, "text", torch.empty(0), (torch.ones(9), object()), torch.eye(4).to_sparse()],
        *[torch.ones(9, device="meta"), [[[[[[torch.ones(9)]]]]]]],
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
