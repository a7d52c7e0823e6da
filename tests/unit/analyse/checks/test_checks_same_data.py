"""Ranks that train on the same data, and innocent trainings that look like it, from written traces."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.written_training import found as _found


def test_the_same_data_on_all_ranks(tmp_path: Path) -> None:
    loader = {
        "sampler": "DistributedSampler",
        "distributed": True,
        "rank": 0,
        "replicas": 2,
        "epochs": 1,
        "distinct": 1,
    }
    (found,) = _found(tmp_path, gradient=lambda _, step: 2.0 + step, training=({"loaders": [loader]},) * 2)
    seen = (found.kind, found.severity, found.confidence, found.since_step)
    assert seen == ("same_data", "warning", "high", 0)
    assert found.evidence["passes"] == 4 and found.evidence["equal_bits"] == 1
    assert "gives each of them the part of rank 0" in found.message and "rank=dist.get_rank()" in found.advice


def _given(*ranks: Mapping[int, int], loader: bool = False) -> list[dict[str, Any]]:
    """The sidecars' entries of a module's batches, by their passes."""
    entry = {"loaders": [{"sampler": "RandomSampler", "distributed": False, "epochs": 1, "distinct": 0}]}
    return [
        {
            "batches": {"0": {str(at): f"{mark:08x}" for at, mark in marks.items()}},
            **(entry if loader else {}),
        }
        for marks in ranks
    ]


def test_the_same_batches_though_gradients_differ(tmp_path: Path) -> None:
    """As with dropout."""
    (found,) = _found(tmp_path, training=_given({1: 7, 2: 9, 3: 0}, {1: 7, 2: 9, 4: 5}))
    assert (found.kind, found.severity, found.confidence) == ("same_data", "warning", "high")
    assert found.evidence["batches"] == 2 and "as those of dropout do" in found.message


def test_the_same_batches_of_a_loader_and_gradients_are_an_error(tmp_path: Path) -> None:
    (found,) = _found(
        tmp_path,
        gradient=lambda _, step: 2.0 + step,
        training=_given({1: 7, 2: 9}, {1: 7, 2: 9}, loader=True),
    )
    assert (found.severity, found.evidence["gradients_alike"]) == ("error", 1)
    assert "the loader's RandomSampler gives every rank all of the data" in found.message


def test_a_sampler_of_ones_own_may_divide_the_data(tmp_path: Path) -> None:
    given = _given({1: 7, 2: 9}, {1: 7, 2: 9}, loader=True)
    for one in given:
        one["loaders"][0]["sampler"] = "Halves"
    (found,) = _found(tmp_path, training=given)
    assert "all of the data" not in found.message and "Halves is no DistributedSampler" in found.message
    assert found.advice.startswith("Look at what Halves and the data set give each rank.")


def test_a_batch_that_is_all_of_the_loader(tmp_path: Path) -> None:
    """It never changes, but is no fixed one of a benchmark."""
    for size, findings in ((100, 1), (10, 0)):
        training = _given({1: 7, 2: 7}, {1: 7, 2: 7}, loader=True)
        for one in training:
            one["loaders"][0].update(length=100, batch_size=size)
        assert len(_found(tmp_path / str(size), training=training)) == findings


def test_two_of_three_ranks_with_the_same_batches(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, training=_given({1: 7, 2: 9}, {1: 7, 2: 8}, {1: 7, 2: 9}))
    assert found.message.startswith("ranks 0, 2 train on the same data: each of the 2 batches")


@pytest.mark.parametrize(
    ("batches", "findings"),
    [
        ([{1: 7, 2: 9}, {1: 7, 2: 8}], 0),
        ([{1: 7, 2: 7}, {1: 7, 2: 7}], 0),  # fixed, as in a benchmark
        ([{1: 7, 2: 9}, {1: 0, 2: 0}], 1),  # nobody could read them
        ([{1: 7, 2: 9}, {1: 7, 3: 9}], 1),
    ],
)
def test_batches_decide_where_gradients_are_alike(
    tmp_path: Path, batches: list[Mapping[int, int]], findings: int
) -> None:
    found = _found(tmp_path, gradient=lambda _, step: 2.0 + step, training=_given(*batches))
    assert len(found) == findings and all("gradients of all" in one.message for one in found)


def test_the_same_data_but_for_rounding_on_two_of_three(tmp_path: Path) -> None:
    (found,) = _found(
        tmp_path,
        gradient=lambda rank, step: (2.0 + step) * (2.0 if rank == 1 else 1.0 + 1e-8 * rank),
        training=({}, {}, {}),
    )
    assert (found.kind, found.confidence) == ("same_data", "medium")
    assert found.message.startswith("ranks 0, 2 train on the same data")


@pytest.mark.parametrize(
    "gradient",
    [
        lambda rank, step: 3.0 if step == 16 else 3.0 + rank + step,  # equal once
        lambda rank, step: 0.0,
        lambda rank, step: 4.0,  # one that depends on no data
        lambda rank, step: 2.0 + step + 1e-3 * rank,
    ],
)
def test_gradients_that_are_alike_by_chance(tmp_path: Path, gradient: Callable[[int, int], float]) -> None:
    assert _found(tmp_path, gradient=gradient) == []


@pytest.mark.parametrize(
    "level",
    [
        lambda rank, step: -9.5 - step - 0.01 * rank,  # one of 24 layers differs by a quarter
        lambda _, step: 0.0,  # not known: as of a part that is dead, or in older traces
        lambda _, step: -9.5 if step == 16 else 0.0,
    ],
)
def test_sums_that_are_alike_of_parameters_that_are_not_known_to_be(
    tmp_path: Path, level: Callable[[int, int], float]
) -> None:
    assert _found(tmp_path, gradient=lambda _, step: 2.0 + step, level=level) == []
