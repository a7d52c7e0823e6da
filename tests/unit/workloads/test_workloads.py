"""The workloads: digits and their shards, folders of images, texts by characters, and the networks."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.images import make_folder

from pyddpdiag.bench.cases import MODELS
from pyddpdiag.errors import DataError, TrainError, UsageError
from pyddpdiag.workloads import fixed, networks
from pyddpdiag.workloads import workload as module
from pyddpdiag.workloads.archs import ARCHS, TRAINED, arch_of
from pyddpdiag.workloads.fixed import fixed_batch
from pyddpdiag.workloads.images import ImageSamples, find_images
from pyddpdiag.workloads.networks import Transformer, resnet18, resnet50
from pyddpdiag.workloads.samples import ShardedBatches, TensorSamples, share, steps_per_epoch
from pyddpdiag.workloads.text import CONTEXT, TextSamples, read_text
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


def test_classes_are_folders_and_val_is_taken(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, per_class=6, val=2)
    (folder / "train" / "blue" / "notes.txt").write_text("no image")
    (folder / "train" / ".hidden").mkdir()
    files = find_images(folder)
    assert files.classes == ("blue", "green", "red")
    assert (len(files.train), len(files.test)) == (18, 6)
    assert all(path.parent.name == files.classes[number] for path, number in files.train + files.test)


def test_without_val_every_fifth_image_is_held_out(tmp_path: Path) -> None:
    files = find_images(make_folder(tmp_path, per_class=10))
    assert (len(files.train), len(files.test)) == (24, 6)
    assert not set(files.train) & set(files.test)
    assert find_images(tmp_path) == files


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda f: (f / "train").rename(f / "elsewhere"), "no folder"),
        (lambda f: (f / "train" / "empty").mkdir(), "holds no image"),
        (lambda f: (f / "val" / "yellow").mkdir(parents=True), "yellow"),
    ],
)
def test_a_folder_that_cannot_be_right_is_refused(spoil, reason: str, tmp_path: Path) -> None:
    spoil(make_folder(tmp_path, per_class=2))
    with pytest.raises(DataError, match=reason):
        find_images(tmp_path)


def test_a_single_class_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train" / "only").mkdir(parents=True)
    with pytest.raises(DataError, match="1 class"):
        find_images(tmp_path)


@pytest.mark.parametrize("workers", [0, 3])
def test_a_corrupt_image_is_named_where_its_batch_comes(workers: int, tmp_path: Path) -> None:
    files = find_images(make_folder(tmp_path, per_class=8, val=1)).train
    bad = files[7][0]
    bad.write_bytes(bad.read_bytes()[:60])
    batches = ShardedBatches(ImageSamples(files, 16, 0), 4, 1, 0, seed=3, epoch=0, workers=workers)
    with pytest.raises(DataError, match=bad.name):
        list(batches)


def test_samples_are_square_normalised_and_change_by_epoch_only(tmp_path: Path) -> None:
    files = find_images(make_folder(tmp_path, per_class=4, val=1)).train
    samples = ImageSamples(files, 24, seed=1)
    chosen = np.array([0, 5, 11])
    images, labels = samples.fetch(chosen, None)
    assert images.shape == (3, 3, 24, 24) and labels.tolist() == [0, 1, 2]
    # Each class has a colour of its own: blue, green, red.
    assert images.mean((2, 3)).argmax(1).tolist() == [2, 1, 0]
    first, again, other = (samples.fetch(chosen, epoch)[0] for epoch in (0, 0, 1))
    assert first.equal(again) and not first.equal(other)
    # A sample does not depend on its batch, so it is the same at every number of ranks.
    assert samples.fetch(chosen[1:2], 0)[0][0].equal(first[1])


SMALL = ("digits-cnn", "mlp_small", "resnet18", "transformer")


def test_every_name_can_be_built_and_measured() -> None:
    assert set(networks._BUILDERS) == set(fixed._MAKERS) == set(ARCHS) == set(MODELS)


def test_what_can_only_be_measured_is_not_trained() -> None:
    assert "mlp" not in TRAINED
    with pytest.raises(UsageError, match="measured by `pyddpdiag bench` only") as caught:
        arch_of("mlp")
    assert "digits-cnn" in caught.value.hint and "mlp" not in caught.value.hint


def test_training_and_benchmarks_have_the_same_residual_networks() -> None:
    assert networks._BUILDERS["resnet50"] is resnet50 and networks._BUILDERS["resnet18"] is resnet18


@pytest.mark.parametrize("name", SMALL)
def test_a_fixed_batch_is_the_same_on_every_rank_and_reaches_every_parameter(name: str) -> None:
    first, second = fixed_batch(name), fixed_batch(name)
    assert first.module.training and first.batch_size > 0
    loss = first.loss(first.module)
    assert torch.equal(loss, second.loss(second.module))
    loss.backward()
    for parameter in first.module.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()


def test_a_missing_library_is_named() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="transformers"):
            fixed_batch("bert_small")
    else:
        assert fixed_batch("bert_small").batch_size == 2


def test_residual_networks_have_the_published_numbers_of_parameters() -> None:
    with torch.device("meta"):
        for build, count in ((resnet18, 11_689_512), (resnet50, 25_557_032)):
            assert sum(p.numel() for p in build(1000).parameters()) == count


def test_a_residual_network_scores_images_of_any_size() -> None:
    model = resnet18(3).eval()
    for side in (32, 50):
        assert model(torch.randn(2, 3, side, side)).shape == (2, 3)


def test_the_transformer_does_not_look_ahead() -> None:
    torch.manual_seed(0)
    model = Transformer(11, 16, width=32, layers=2)
    text = torch.randint(11, (1, 16))
    changed = text.clone()
    changed[0, 9] = (changed[0, 9] + 1) % 11
    with torch.no_grad():
        before, after = model(text), model(changed)
    assert before.shape == (1, 16, 11)
    assert torch.allclose(before[0, :9], after[0, :9], atol=1e-6)
    assert not torch.allclose(before[0, 9], after[0, 9])


def test_targets_are_the_inputs_moved_on_by_one(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("abcdé" * 2000, encoding="utf-8")
    text = read_text(path)
    assert text.alphabet == "abcdé"
    assert (len(text.train), len(text.test)) == (9000, 1000)
    samples = TextSamples(text.train, seed=2)
    everything = np.arange(len(samples))
    for epoch in (None, 0, 1):
        inputs, targets = samples.fetch(everything, epoch)
        assert inputs.shape == targets.shape == (len(samples), CONTEXT)
        assert inputs[:, 1:].equal(targets[:, :-1])
        assert ((inputs + 1) % 5).equal(targets)
    assert not samples.fetch(everything, 0)[0].equal(samples.fetch(everything, 1)[0])


def test_the_shortest_text_has_something_to_test(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("ab" * 20 * CONTEXT, encoding="utf-8")
    assert len(TextSamples(read_text(path).test, 0)) >= 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"\xff\xfe" * 5000, "UTF-8"), (b"too short", "at least")],
)
def test_a_text_that_cannot_be_used_is_refused(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=reason):
        read_text(path)
