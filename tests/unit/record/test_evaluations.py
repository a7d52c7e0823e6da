"""Evaluations: what a rank's recorder sees of passes over a loader without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from pyddpdiag.model.fields import from_json, to_json
from pyddpdiag.model.training import MOST, Evaluated, Training
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
        {"seconds": -1.0},
        {"seconds": "nan"},
        {"seconds": 1e300},
        {"passes": "x"},
        {"passes": 0},
        {"marks": 5},
        {"where": None},
    ):
        assert from_json(Training, {"evaluations": [{**raw["evaluations"][0], **bad}]}).evaluated == ()
