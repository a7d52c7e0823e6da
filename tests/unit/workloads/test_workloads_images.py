"""Image folders: what is found, what is refused, and what a batch holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.images import make_folder

from pyddpdiag.errors import DataError
from pyddpdiag.workloads.images import ImageSamples, find_images
from pyddpdiag.workloads.samples import ShardedBatches


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
