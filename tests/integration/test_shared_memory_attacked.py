"""Ranks that average in shared memory, killed at random moments and on a loaded machine. At length: tests/attack."""

import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no fork server", allow_module_level=True)

from support.shared_attack import kill_one, train_under_load


@pytest.mark.parametrize("seed", range(5))
def test_every_survivor_names_the_rank_that_was_killed(tmp_path: Path, seed: int) -> None:
    # Within 2 seconds, on a machine that is not overloaded.
    assert kill_one(tmp_path, seed).seconds < 30


@pytest.mark.parametrize("seed", range(4))
def test_every_survivor_on_every_host_names_it(tmp_path: Path, seed: int) -> None:
    assert kill_one(tmp_path, seed, hosts=(0, 1, 1, 0)).seconds < 30


def test_the_same_bits_under_load(tmp_path: Path) -> None:
    train_under_load(tmp_path)
