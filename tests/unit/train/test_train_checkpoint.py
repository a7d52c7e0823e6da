"""Checkpoints that cannot be written or used."""

import sys
from pathlib import Path

import pytest
import torch

from pyddpdiag.errors import CheckpointError
from pyddpdiag.train.checkpoint import Checkpoint, _parse, check_fit, write
from pyddpdiag.train.events import EpochDone
from pyddpdiag.train.inputs import split_script

CPU = torch.device("cpu")
EPOCH = EpochDone(0, 1.5, 1.25, 0.5, 2.0)


def checkpoint(size: int = 1000) -> Checkpoint:
    model = {"weight": torch.arange(size, dtype=torch.float32)}
    return Checkpoint("digits-cnn", ("a", "b"), model, {"state": {}}, (EPOCH,))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "c.pt"
    write(path, checkpoint())
    found = _parse(path.read_bytes(), path, CPU)
    assert found.history == (EPOCH,) and found.classes == ("a", "b")
    assert found.model["weight"].equal(checkpoint().model["weight"])
    assert [p.name for p in path.parent.iterdir()] == ["c.pt"]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes to run into")
def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "c.pt"
    write(path, checkpoint())
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot be written"):
            write(path, checkpoint(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.pt"]


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError):
        write(tmp_path / "file" / "c.pt", checkpoint())


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_other_files_and_halves_are_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    write(path, checkpoint())
    half = path.read_bytes()[: path.stat().st_size // 2]
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        _parse(half if content is None else content, path, CPU)


def test_another_programs_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    torch.save({"weight": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError):
        _parse(path.read_bytes(), path, CPU)


def test_another_network_or_other_classes_are_refused() -> None:
    with pytest.raises(CheckpointError, match="is of digits-cnn"):
        check_fit(checkpoint(), Path("c.pt"), "resnet18", ("a", "b"))
    with pytest.raises(CheckpointError, match="classes"):
        check_fit(checkpoint(), Path("c.pt"), "digits-cnn", ("a", "c"))


def test_script_names() -> None:
    assert split_script("mine.py") == (Path("mine.py"), "train")
    assert split_script("mine.py:run") == (Path("mine.py"), "run")
    assert split_script("D:/x/mine.py") == (Path("D:/x/mine.py"), "train")
    assert split_script("D:/x/mine.py:run") == (Path("D:/x/mine.py"), "run")
