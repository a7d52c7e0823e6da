"""Saves: into which files a rank's recorder sees a script save."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from pyddpdiag.model.fields import from_json, to_json
from pyddpdiag.model.saves import FILES, SPANS, Saved
from pyddpdiag.model.training import Training
from pyddpdiag.record.saves import Saves
from pyddpdiag.system.clock import monotonic_ns


def _saved(*targets: object) -> tuple[Saved, ...]:
    seen = Saves(lambda: None)
    for target in targets:
        seen.saved(target, monotonic_ns())
    return seen.saves()


def test_a_file_has_its_name_its_line_and_its_times(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    path.touch()
    began = monotonic_ns()
    (one,) = _saved(path, str(path))
    assert (one.name, one.times) == ("last.pt", 2)
    assert one.where.rpartition("/")[2].startswith("test_saves.py:")
    assert str(tmp_path) not in one.file
    (first, second) = one.spans
    assert began <= first[0] <= first[1] <= second[0] <= second[1] <= monotonic_ns()


def test_an_open_file_is_the_same_as_its_path(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    with path.open("wb") as file:
        (one,) = _saved(file, path)
    assert one.times == 2


def test_no_code_of_somebodys_own_class_runs(tmp_path: Path) -> None:
    path, asked = tmp_path / "last.pt", list[str]()
    path.touch()

    class Named:
        def __getattr__(self, name: str) -> str:
            asked.append(name)
            return str(path)

        def __fspath__(self) -> str:
            asked.append("its path")
            return str(path)

    assert _saved(Named()) == () and asked == []


def test_another_folder_or_a_file_made_anew_is_another_file(tmp_path: Path) -> None:
    paths = [tmp_path / str(rank) / "last.pt" for rank in range(2)]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    assert [one.name for one in _saved(*paths)] == ["last.pt", "last.pt"]
    seen = Saves(lambda: None)
    seen.saved(paths[0], 0)
    kept = paths[0].rename(
        tmp_path / "kept.pt"
    )  # so that the system does not give its number to the next one
    paths[0].touch()
    seen.saved(paths[0], 0)
    assert kept.exists() and len(seen.saves()) == 2


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="this system has no links")
def test_a_link_to_the_folder_leads_to_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "last.pt").touch()
    try:
        (tmp_path / "latest").symlink_to(tmp_path / "run")
    except OSError:
        pytest.skip("links are not allowed here")
    assert len(_saved(tmp_path / "run" / "last.pt", tmp_path / "latest" / "last.pt")) == 1


class _Cloud:
    name = "s3://bucket/last.pt"

    def fileno(self) -> int:
        raise OSError("it is no file")


def test_what_is_no_file_on_a_disk_is_left_out(tmp_path: Path) -> None:
    assert _saved(io.BytesIO(), tmp_path / "gone.pt", tmp_path, os.devnull, None, 3, _Cloud()) == ()


def test_what_is_kept_is_bounded_and_survives_the_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"{epoch}.pt" for epoch in range(FILES + 3)]
    for path in paths:
        path.touch()
    found = _saved(*paths, *[paths[0]] * (SPANS + 5))
    assert len(found) == FILES and found[0].times == SPANS + 6 and len(found[0].spans) == SPANS
    assert from_json(Training, to_json(Training(saved=found))).saved == found


def test_it_is_written_down_ever_more_rarely(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    path.touch()
    counts: list[int] = []
    seen = Saves(lambda: counts.append(seen.saves()[0].times))
    for _ in range(20):
        seen.saved(path, 0)
    assert counts == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    "change",
    [
        *[{"file": ""}, {"file": 7}, {"times": -1}, {"spans_ns": [[2, 1]]}, {"spans_ns": [[1]]}],
        *[{"spans_ns": [[1, 2, 3]]}, {"spans_ns": [[1, 2**62]]}],
        *[{"spans_ns": [[1, 2]] * (SPANS + 1)}, {"spans_ns": {}}, {"name": None}],
    ],
)
def test_a_damaged_entry_is_left_out(change: dict[str, object]) -> None:
    sound = to_json(Training(saved=(Saved("ff", "last.pt", "train.py:9", 1, ((1, 2),)),)))
    damaged = {"saves": [{**sound["saves"][0], **change}, *sound["saves"]]}
    assert [one.file for one in from_json(Training, damaged).saved] == ["ff"]
