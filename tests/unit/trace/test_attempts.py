"""Attempts of a job: where a restarted rank records, and which attempt a reader takes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pyddpdiag.errors import UsageError
from pyddpdiag.model.attempts import attempt_folder, attempt_number, numbered
from pyddpdiag.system import processes
from pyddpdiag.trace.attempts import choose_attempt


def traced(folder: Path, launch: str = "", started_s: float = 0) -> Path:
    """A folder with what a rank leaves in it, whose process started at that time."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rank_0.ddptrace").touch()
    (folder / "rank_0.json").write_text(
        json.dumps({"environment": {"TORCHELASTIC_RUN_ID": launch}, "process_started_s": started_s}),
        encoding="utf-8",
    )
    return folder


def launched(monkeypatch: pytest.MonkeyPatch, restarts: str | None = None, launch: str | None = None) -> Any:
    """pyddpdiag.record.elastic, in a rank of such a launch."""
    elastic = pytest.importorskip("pyddpdiag.record.elastic", reason="pyddpdiag.record stands on torch")
    for name, value in (("TORCHELASTIC_RESTART_COUNT", restarts), ("TORCHELASTIC_RUN_ID", launch)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    return elastic


def test_names_and_numbers_belong_together(tmp_path: Path) -> None:
    assert attempt_folder(tmp_path, 0) == tmp_path
    assert attempt_number(attempt_folder(tmp_path, 12).name) == 12
    names = ("attempt-0", "attempt-01", "attempt-1x", "attempt-", "Attempt-1", "attempt-٣")
    assert [attempt_number(name) for name in names] == [None] * 6


def test_the_newest_attempt_is_chosen(tmp_path: Path) -> None:
    folder = traced(tmp_path / "run")
    assert choose_attempt(folder) == (folder, "")
    for number in (1, 2, 10):
        traced(attempt_folder(folder, number))
    (folder / "attempt-11").touch()  # a file
    chosen, others = choose_attempt(folder)
    assert chosen == folder / "attempt-10"
    assert "attempt 10, the newest; --attempt shows another: 0, 1, 2." in others
    assert choose_attempt(folder, 0)[0] == folder
    assert "an earlier one" in choose_attempt(folder, 1)[1]
    with pytest.raises(UsageError, match="no attempt 3"):
        choose_attempt(folder, 3)


def test_a_folder_that_cannot_be_read_is_left_to_its_reader(tmp_path: Path) -> None:
    assert choose_attempt(tmp_path / "missing") == (tmp_path / "missing", "")
    with pytest.raises(UsageError, match="no attempt 1"):
        choose_attempt(tmp_path, 1)


def test_only_the_first_attempt_left_no_trace(tmp_path: Path) -> None:
    traced(tmp_path / "attempt-1")
    assert choose_attempt(tmp_path) == (tmp_path / "attempt-1", "")


@pytest.mark.parametrize(
    ("restarts", "launch", "taken", "expected"),
    [
        (None, None, [], 0),
        ("0", "mine", [], 0),
        ("1", "mine", [], 1),
        ("1", "none", [], 1),
        ("1", "mine", [1], 2),  # the number of ranks changed, too
        ("3", "mine", [1], 3),
        ("0", "mine", [0], 1),  # the same launch, which has not counted
        ("0", "mine", [0, 1], 2),
        ("0", "none", [0], 0),  # another launch may have this id: its traces are in the way, as ever
        ("-1", "mine", [], 0),
    ],
)
def test_where_an_attempt_records(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restarts: str | None,
    launch: str | None,
    taken: list[int],
    expected: int,
) -> None:
    elastic = launched(monkeypatch, restarts, launch)
    for number in taken:
        traced(attempt_folder(tmp_path / "run", number), launch or "")
    assert elastic.attempt_in(tmp_path / "run") == expected


# Ranks of this launch start when its launcher, this process's parent, has been there for a while.
NOW = processes.started_at(os.getppid()) + 1


@pytest.mark.parametrize(
    ("restarts", "launch", "before", "expected"),
    [
        (None, None, [], (1, 0)),
        (None, None, [("", 0)], (2, 0)),
        (None, None, [("", 0), ("", NOW)], (3, 0)),
        ("0", "none", [("none", NOW)], (2, 0)),  # a run before this one, below the same shell
        ("0", "mine", [("theirs", 0)], (2, 0)),
        ("0", "mine", [("theirs", 0), ("mine", NOW)], (2, 1)),  # the same launch, which has not counted
        ("1", "mine", [("theirs", 0), ("mine", NOW), ("theirs", 0)], (2, 1)),
        ("1", "none", [("none", 0), ("none", NOW), ("none", 0)], (2, 1)),
        (
            "1",
            "none",
            [("none", NOW), ("none", NOW)],
            (1, 1),
        ),  # another recorder of the script names run-2 itself
        ("2", "none", [("none", 0)], (1, 2)),  # nothing was recorded before the restart
        ("1", "mine", [], (1, 1)),
    ],
)
def test_a_run_records_beside_those_before_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restarts: str | None,
    launch: str | None,
    before: list[tuple[str, float]],
    expected: tuple[int, int],
) -> None:
    elastic = launched(monkeypatch, restarts, launch)
    for number, (theirs, started_s) in enumerate(before, 1):
        traced(numbered(tmp_path / "run", number), theirs, started_s)
    assert elastic.place_beside(tmp_path / "run") == expected


def test_a_folder_without_a_name_of_its_own_has_none_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elastic = launched(monkeypatch)
    monkeypatch.chdir(traced(tmp_path / "run"))
    assert [elastic.place_beside(Path(name)) for name in (".", "..")] == [(1, 0)] * 2
