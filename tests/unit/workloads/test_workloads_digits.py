"""Sharding of the batches, and the data set itself."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyddpdiag.errors import TrainError
from pyddpdiag.workloads import workload as module
from pyddpdiag.workloads.samples import ShardedBatches, TensorSamples, share, steps_per_epoch
from pyddpdiag.workloads.workload import Digits, load_digits


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits()


@given(st.integers(0, 500), st.integers(1, 33))
def test_shares_cover_everything_once_and_differ_by_at_most_one(count: int, world_size: int) -> None:
    parts = [share(count, world_size, rank) for rank in range(world_size)]
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(st.integers(1, 5), st.integers(5, 40), st.integers(0, 3), st.integers(0, 2**63 - 1))
def test_ranks_see_disjoint_parts_of_the_batches_of_one_rank(
    world: int, batch: int, epoch: int, seed: int
) -> None:
    labels = torch.arange(101)

    def epoch_of(world_size: int, rank: int) -> list[list[int]]:
        # Read ahead on one rank and not on the others: the order is the same.
        samples = TensorSamples(labels, labels)
        batches = ShardedBatches(samples, batch, world_size, rank, seed, epoch, workers=2 * (rank == 0))
        return [y.tolist() for _, y in batches]

    whole = epoch_of(1, 0)
    assert len(whole) == steps_per_epoch(101, batch)
    parts = [epoch_of(world, rank) for rank in range(world)]
    assert [list(chain(*step)) for step in zip(*parts, strict=True)] == whole
    flat = list(chain(*whole))
    assert len(set(flat)) == len(flat)


def test_order_depends_on_seed_and_epoch() -> None:
    labels = torch.arange(50)
    orders = set()
    for seed in range(3):
        for epoch in range(3):
            ((_, order),) = ShardedBatches(TensorSamples(labels, labels), 50, 1, 0, seed, epoch)
            orders.add(tuple(order.tolist()))
    assert len(orders) == 9


def test_the_data_set_is_whole_and_normalised(digits: Digits) -> None:
    assert digits.train_images.shape == (1437, 1, 8, 8)
    assert digits.test_images.shape == (360, 1, 8, 8)
    assert digits.train_images.dtype == torch.float32
    assert abs(digits.train_images.mean().item()) < 1e-5
    assert abs(digits.train_images.std().item() - 1) < 1e-3
    for labels in (digits.train_labels, digits.test_labels):
        assert sorted(set(labels.tolist())) == list(range(10))
        assert labels.bincount().min() > 0.07 * len(labels)


def test_no_test_image_is_trained_on(digits: Digits) -> None:
    train = {image.numpy().tobytes() for image in digits.train_images}
    assert not any(image.numpy().tobytes() in train for image in digits.test_images)


def test_the_labels_are_those_of_the_published_set(digits: Digits) -> None:
    labels = torch.cat([digits.train_labels, digits.test_labels])
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.mark.parametrize("content", [None, b"", b"not a zip", module.FILE.read_bytes()[:20000]])
def test_a_damaged_file_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    file = tmp_path / "digits.npz"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(module, "FILE", file)
    with pytest.raises(TrainError, match="install pyddpdiag again"):
        load_digits()
