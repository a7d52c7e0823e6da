"""The helper that runs ranks for the other tests: what it waits for, and for how long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.ranks import run_ranks

SLOW = "PYDDPDIAG_TEST_SLOW_IMPORT_S"
# In the ranks only: in the process of the tests, this module was loaded before anybody set the variable.
time.sleep(float(os.environ.get(SLOW, "0")))


def _rank_itself(rank: int, _: int) -> int:
    return rank


def _sleeps(rank: int, _: int) -> None:
    if rank == 1:
        time.sleep(600)


def test_loading_takes_nothing_from_the_time_that_the_job_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_s = 20.0
    monkeypatch.setenv(SLOW, str(limit_s + 1))
    assert run_ranks(_rank_itself, 2, tmp_path, timeout_s=limit_s, spawned=True) == [0, 1]


def test_a_job_that_does_not_end_fails_the_test_in_time(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"rank \d gave no answer in 3 s"):
        run_ranks(_sleeps, 2, tmp_path, timeout_s=3)
