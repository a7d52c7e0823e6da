"""What other machines bring to the common place is waited for, and a part of a file is never taken for the whole."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import write_training

from pyddpdiag.remote.carrier import wait_for_ranks
from pyddpdiag.remote.place import Place


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_training(tmp_path / "run")
    return tmp_path / "run"


def test_a_file_of_which_only_a_part_has_come_is_not_seen(run: Path, tmp_path: Path) -> None:
    """Another machine may look while it is on its way."""
    there = tmp_path / "there"
    place = Place(there.as_uri())
    put, seen = place._fs.put_file, list[list[str]]()

    def slow(*given: Any) -> None:
        put(*given)
        seen.append(sorted(place.sizes()))

    place._fs.put_file = slow
    try:
        for _ in range(2):  # the second one takes the place of the first
            place.put(run / "rank_0.ddptrace", "rank_0.ddptrace")
    finally:
        place._fs.put_file = put
    assert seen == [["rank_0.ddptrace.part"], ["rank_0.ddptrace", "rank_0.ddptrace.part"]]
    assert list(place.sizes()) == ["rank_0.ddptrace"]
    assert (there / "rank_0.ddptrace").read_bytes() == (run / "rank_0.ddptrace").read_bytes()


@pytest.mark.parametrize("refused", [1, 2])
def test_a_place_that_renames_over_no_file_or_not_at_all_gets_it_all_the_same(
    run: Path, tmp_path: Path, refused: int
) -> None:
    there = tmp_path / "there"
    place = Place(there.as_uri())
    move, asked = place._fs.mv, list[str]()

    def refuses(old: str, new: str) -> None:
        asked.append(new)
        if len(asked) <= refused:
            raise OSError("Operation unsupported")
        move(old, new)

    place._fs.mv = refuses
    try:
        place.put(run / "rank_0.ddptrace", "rank_0.ddptrace")
    finally:
        place._fs.mv = move
    assert list(place.sizes()) == ["rank_0.ddptrace"] and len(asked) == 2
    assert (there / "rank_0.ddptrace").read_bytes() == (run / "rank_0.ddptrace").read_bytes()


@pytest.fixture
def far(tmp_path: Path) -> Path:
    folder = tmp_path / "far"
    folder.mkdir()
    return folder


def test_ranks_that_do_not_come_are_named_when_the_time_is_over(far: Path) -> None:
    # What is still on its way, and what lies beside a trace, is none.
    for name in ("rank_0.ddptrace", "rank_1.ddptrace.part", "rank_2.json"):
        (far / name).write_bytes(b"x")
    assert wait_for_ranks(Place(f"file://{far.as_posix()}"), 3, limit_s=0.2) == [1, 2]


def test_it_waits_no_longer_than_until_all_are_there(far: Path) -> None:
    (far / "attempt_1").mkdir()

    def bring() -> None:
        for rank in range(2):
            time.sleep(0.2)
            (far / "attempt_1" / f"rank_{rank}.ddptrace").write_bytes(b"x")

    thread = threading.Thread(target=bring)
    thread.start()
    # The first attempt's do not count.
    (far / "rank_0.ddptrace").write_bytes(b"x")
    assert wait_for_ranks(Place(f"file://{far.as_posix()}"), 2, "attempt_1", limit_s=60.0) == []
    thread.join()


def test_a_place_that_is_not_there_yet_has_none(tmp_path: Path) -> None:
    assert wait_for_ranks(Place(f"file://{(tmp_path / 'later').as_posix()}"), 1, limit_s=0.0) == [0]
