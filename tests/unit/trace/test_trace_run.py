from __future__ import annotations

from pathlib import Path

import pytest
from support.trace_writer import RankWriter

from pyddpdiag.errors import TraceError
from pyddpdiag.trace.run import open_run


def write(folder: Path, rank: int, world_size: int = 2, *, name: str = "", **header: object) -> Path:
    writer = RankWriter(rank, world_size, **header)  # type: ignore[arg-type]
    writer.bucket(0, 1, 2, 3)
    return writer.write(folder, name=name)


def warning(folder: Path, *parts: str) -> str:
    """The one warning that holds all parts."""
    found = [text for text in open_run(folder).warnings if all(part in text for part in parts)]
    assert len(found) == 1, open_run(folder).warnings
    return found[0]


def test_whole_run_has_no_warnings(tmp_path: Path) -> None:
    for rank in (1, 0, 2):
        write(tmp_path, rank, 3)
    run = open_run(tmp_path)
    assert [trace.rank for trace in run.ranks] == [0, 1, 2]
    assert (run.world_size, run.missing, run.missing_count, run.warnings) == (3, (), 0, ())


def test_ranks_are_sorted_by_number_and_not_by_name(tmp_path: Path) -> None:
    for rank in range(12):
        write(tmp_path, rank, 12)
    assert [trace.rank for trace in open_run(tmp_path).ranks] == list(range(12))


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such folder"):
        open_run(tmp_path / "nowhere")


def test_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no traces") as caught:
        open_run(tmp_path)
    assert "pyddpdiag train" in caught.value.hint


def test_folder_above_the_traces_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "demo", 0)
    with pytest.raises(TraceError, match="no traces") as caught:
        open_run(tmp_path)
    assert str(tmp_path / "demo") in caught.value.hint


def test_file_instead_of_folder_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, 0)
    with pytest.raises(TraceError, match="one rank's trace") as caught:
        open_run(path)
    assert str(tmp_path) in caught.value.hint


def test_missing_rank_is_named(tmp_path: Path) -> None:
    write(tmp_path, 0, 3)
    write(tmp_path, 2, 3)
    run = open_run(tmp_path)
    assert run.missing == (1,) and run.missing_count == 1
    warning(tmp_path, "no trace of rank 1 of 3")


def test_huge_world_is_not_listed(tmp_path: Path) -> None:
    write(tmp_path, 5, 2**20)
    run = open_run(tmp_path)
    assert run.missing_count == 2**20 - 1
    assert len(run.missing) == 1024
    assert max(map(len, run.warnings)) < 400


def test_ranks_of_different_runs_are_distinguished(tmp_path: Path) -> None:
    write(tmp_path, 0, 3, run_id=b"A" * 16)
    write(tmp_path, 1, 3, run_id=b"A" * 16)
    write(tmp_path, 2, 3, run_id=b"B" * 16)
    run = open_run(tmp_path)
    assert [trace.rank for trace in run.ranks] == [0, 1]
    text = warning(tmp_path, "2 runs are mixed")
    assert f"run {'41' * 4}: rank_0.ddptrace, rank_1.ddptrace" in text
    assert f"run {'42' * 4}: rank_2.ddptrace" in text


def test_newer_of_two_equal_runs_is_kept(tmp_path: Path) -> None:
    write(tmp_path, 0, 1, run_id=b"A" * 16, wall_ns=2_000, name="rank_0.ddptrace")
    write(tmp_path, 0, 1, run_id=b"B" * 16, wall_ns=3_000, name="rank_1.ddptrace")
    assert open_run(tmp_path).run_id == (b"B" * 16).hex()


def test_duplicate_rank_keeps_the_file_named_after_it(tmp_path: Path) -> None:
    write(tmp_path, 1, name="rank_0.ddptrace")
    write(tmp_path, 1)
    run = open_run(tmp_path)
    assert [trace.path.name for trace in run.ranks] == ["rank_1.ddptrace"]
    warning(tmp_path, "rank_0.ddptrace", "is rank 1 as rank_1.ddptrace is")


def test_renamed_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path, 0)
    write(tmp_path, 1, name="rank_7.ddptrace")
    warning(tmp_path, "rank_7.ddptrace: holds rank 1")


@pytest.mark.parametrize(
    "name",
    [
        *("other.ddptrace", "rank_1_old.ddptrace", "rank_01.ddptrace", "rank_.ddptrace"),
        *("rank_-1.ddptrace", "rank_12345678.ddptrace", "rank_\u0661.ddptrace"),
        *("rank_1.ddptrace.ddptrace", ".ddptrace.ddptrace"),
    ],
)
def test_only_files_named_after_a_rank_are_read(tmp_path: Path, name: str) -> None:
    write(tmp_path, 1, name=name)
    with pytest.raises(TraceError, match="no traces") as caught:
        open_run(tmp_path)
    assert name in caught.value.hint
    write(tmp_path, 0)
    assert [trace.rank for trace in open_run(tmp_path).ranks] == [0]
    warning(tmp_path, "only files named rank_<number>.ddptrace", name)


def test_world_sizes_that_disagree_are_reported(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, rank, 4 if rank == 2 else 3)
    text = warning(tmp_path, "disagree about the world size")
    assert "rank_2.ddptrace" in text
    assert open_run(tmp_path).world_size == 3


def test_unreadable_file_among_good_ones_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, 0)
    (tmp_path / "rank_1.ddptrace").write_bytes(b"nonsense" * 1000)
    assert [trace.rank for trace in open_run(tmp_path).ranks] == [0]
    warning(tmp_path, "left out", "rank_1.ddptrace", "not a trace")


def test_only_unreadable_files_are_an_error_that_names_them(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank_{rank}.ddptrace").write_bytes(b"")
    with pytest.raises(TraceError, match="none of its 2 traces") as caught:
        open_run(tmp_path)
    assert "rank_0.ddptrace: never started" in str(caught.value) and "rank_1.ddptrace" in str(caught.value)


def test_open_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path, 0)
    write(tmp_path, 1, closed=0)
    assert "was killed" in warning(tmp_path, "not closed: rank_1.ddptrace")


def test_of_an_open_file_it_is_said_what_ended_its_process(tmp_path: Path) -> None:
    writer = RankWriter(0, 1, closed=0)
    writer.bucket(0, 1, 2, 3)
    writer.sidecar["end"] = {"signal": "SIGABRT", "message": "", "at_ns": 4}
    writer.write(tmp_path)
    assert "was killed" not in warning(tmp_path, "not closed: rank_0.ddptrace; SIGABRT ended")


def test_same_trouble_with_many_files_is_one_warning(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, rank, 3)
        (tmp_path / f"rank_{rank}.json").unlink()
    text = warning(tmp_path, "missing: names")
    assert all(f"rank_{rank}.json" in text for rank in range(3))
