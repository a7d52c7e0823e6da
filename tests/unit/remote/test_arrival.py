"""The first machine waits for what the others bring to the common place."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pyddpdiag.remote.carrier import wait_for_ranks
from pyddpdiag.remote.place import Place


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
