"""Averaging in shared memory, attacked at length: ranks killed while they train, and trainings on a loaded machine."""

import statistics
import sys
from pathlib import Path

import pytest
from support.attack import Rounds, Tell

if sys.platform == "win32":
    pytest.skip("Windows has no fork server", allow_module_level=True)

from support.shared_attack import kill_one, train_under_load


def test_killed_ranks(tmp_path: Path, figures: Tell) -> None:
    rounds = Rounds(tmp_path)
    kills = []
    # Seeds of their own: not the moments of the short tests once more.
    while folder := rounds.folder(len(kills)):
        kills.append(kill_one(folder, 1000 + len(kills)))
    took = sorted(kill.seconds for kill in kills)
    figures(
        f"{len(kills)} kills, {sum(kill.ranks - 1 for kill in kills)} survivors named the dead rank, the last of them "
        f"after {statistics.median(took):.2f} s (median), {took[-1]:.2f} s (longest), "
        f"{sum(seconds > 2 for seconds in took)} after more than 2 s; nothing left, {rounds.seconds:.0f} s"
    )
    assert len(kills) > 1


def test_the_same_bits_under_load(tmp_path: Path, figures: Tell) -> None:
    rounds = Rounds(tmp_path, share=0.5)
    runs = 0
    while folder := rounds.folder(runs):
        train_under_load(folder)
        runs += 1
    figures(f"{runs} runs of 4 ranks under load, the same bits each time, {rounds.seconds:.0f} s")
    assert runs > 0
