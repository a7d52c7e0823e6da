"""The helper that runs ranks for the other tests."""

import time
from pathlib import Path

import pytest
from support.ranks import run_ranks


def _sleeps(rank: int, _: int) -> None:
    if rank == 1:
        time.sleep(600)


def test_a_job_that_does_not_end_fails_the_test_in_time(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"rank \d gave no answer in 3 s"):
        run_ranks(_sleeps, 2, tmp_path, timeout_s=3)
