"""The writer, attacked at length: killed while it writes and while it begins, and closed while it trains."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attack import Rounds, Tell
from support.closing import rounds as closed_rounds
from support.creation_victim import kill_and_check
from support.killed_writer import kill_a_roomy_one, kill_a_wrapping_one
from support.ranks import run_ranks


@pytest.mark.parametrize("kill", [kill_a_roomy_one, kill_a_wrapping_one])
def test_killed_writers(tmp_path: Path, figures: Tell, kill: Callable[[Path, int], int]) -> None:
    rounds = Rounds(tmp_path)
    kills = records = 0
    # Seeds of their own: not the moments of the short tests once more.
    while folder := rounds.folder(kills):
        records += kill(folder, 1000 + kills)
        (folder / "rank_0.ddptrace").unlink()
        kills += 1
    figures(f"{kills} kills, {records} published records checked, {rounds.seconds:.0f} s")
    assert records > kills


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no files without a name")
def test_killed_while_recorders_are_made(tmp_path: Path, figures: Tell) -> None:
    rounds = Rounds(tmp_path)
    kills = made = unpublished = 0
    while folder := rounds.folder(kills):
        count, never = kill_and_check(folder, 1000 + kills)
        made, unpublished, kills = made + count, unpublished + never, kills + 1
    figures(
        f"{kills} kills, {made} recorders made, {unpublished} killed before their trace had its name, no trace was "
        f"half made, {rounds.seconds:.0f} s"
    )


def test_recorders_closed_while_ddp_trains(tmp_path: Path, figures: Tell) -> None:
    rounds = Rounds(tmp_path)
    done = records = 0
    while folder := rounds.folder(done):
        # A process for so many: it has to answer in the time that a test's ranks have.
        count = min(25, rounds.count - done)
        [found] = run_ranks(closed_rounds, 1, folder, str(folder / "runs"), done, count)
        done, records = done + count, records + found
    figures(
        f"{done} recorders closed while DDP trained, {records} records left, none half-written, no crash, no hang, "
        f"{rounds.seconds:.0f} s"
    )
