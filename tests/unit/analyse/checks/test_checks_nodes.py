"""Machines that were lost, those that were not, and wall clocks that show another time."""

import json
import time
from pathlib import Path

import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.node import note_name
from pyddpdiag.pipeline import load_report

NODES = ("a" * 16, "b" * 16)
STEPS = 10
HOUR_S = 3600
START_S = 1_700_000_000  # when the monotonic clocks showed 1 s


class TwoMachines:
    """One rank on each, with clocks that differ; the second rank stands still after its steps. Times in seconds."""

    def __init__(self, folder: Path, ahead_s: int = 0) -> None:
        self.folder = folder
        self.writers = []
        for rank in range(2):
            # The second machine was switched on later, and may have another wall clock.
            own_ns = rank * 500 * 1000 * MS
            writer = RankWriter(
                rank,
                2,
                minor=2,
                closed=0,
                clock_identity=f"clock {rank}".encode(),
                monotonic_ns=1000 * MS - own_ns + 500 * 1000 * MS,
                wall_ns=(START_S + rank * ahead_s) * 1000 * MS,
            )
            writer.sidecar |= {
                "host": f"machine{rank}",
                "launch": {"command": ["x"], "cures": {}, "node": NODES[rank]},
            }
            zero = writer.header["monotonic_ns"]
            writer.header["heartbeat_ns"] = zero + STEPS * 100 * MS
            writer.sound_steps(range(STEPS), zero)
            self.writers.append(writer)

    def heard(self, machine: int, at_s: float, exit_code: int | None = None, ahead_s: int = 0) -> None:
        """The last sign of life, so long after the start."""
        note = {
            "host": f"machine{machine}",
            "clock": f"clock {machine}",
            "pid": 1,
            "at_ns": self.writers[machine].header["monotonic_ns"] + int(at_s * 1000) * MS,
            "at_s": START_S + at_s + ahead_s,
            "exit_code": exit_code,
        }
        self.folder.mkdir(exist_ok=True)
        (self.folder / note_name(NODES[machine])).write_text(json.dumps(note), encoding="utf-8")

    def more_steps(self, machine: int, count: int) -> None:
        writer = self.writers[machine]
        writer.sound_steps(range(STEPS, STEPS + count), writer.header["monotonic_ns"])

    def lost(self) -> list[Finding]:
        return [
            one for one in report_of(self.writers, self.folder).verdict.findings if one.kind == "node_lost"
        ]


@pytest.fixture
def two(tmp_path: Path) -> TwoMachines:
    return TwoMachines(tmp_path / "run")


def test_a_machine_that_falls_silent_before_the_other_is_named(two: TwoMachines) -> None:
    two.heard(0, 31)
    two.heard(1, 1)
    [found] = two.lost()
    assert found.rank == 1 and found.confidence == "medium" and found.evidence["behind_s"] == 30.0
    assert (
        "machine1, on which rank 1 ran, was lost" in found.message
        and "30.0 s before the others" in found.message
    )
    # It is what is said first.
    assert "Machine1, on which rank 1 ran, was lost" in load_report(two.folder).verdict.line


def test_an_hour_between_the_wall_clocks_changes_nothing_and_is_said(tmp_path: Path) -> None:
    two = TwoMachines(tmp_path / "run", ahead_s=HOUR_S)
    two.heard(0, 31)
    two.heard(1, 1, ahead_s=HOUR_S)
    [found] = two.lost()
    # Within what the all-reduces leave open of the clocks: 6 ms.
    assert found.evidence["behind_s"] == pytest.approx(30.0, abs=0.1)
    [said] = [text for text in load_report(two.folder).warnings if "wall clock" in text]
    assert "machine1 (rank 1)" in said and "or more ahead of that of rank 0" in said


def test_wall_clocks_in_step_are_not_mentioned(two: TwoMachines) -> None:
    two.heard(0, 2)
    assert not two.lost()
    assert not any("wall clock" in text for text in load_report(two.folder).warnings)


def test_ranks_that_were_killed_are_no_lost_machine(two: TwoMachines) -> None:
    """The command outlives them and says how it ended. The other machine was heard of until its folder was copied."""
    two.heard(0, 60)
    two.heard(1, 1, exit_code=137)
    assert not two.lost()


def test_a_machine_is_lost_whose_last_word_is_missing_when_all_others_are_done(two: TwoMachines) -> None:
    two.heard(0, 6, exit_code=1)
    two.heard(1, 1)
    [found] = two.lost()
    assert found.confidence == "high" and found.evidence["others_ended"] is True


def test_a_machine_that_may_still_say_its_last_word_is_not_lost(
    two: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.heard(0, 6, exit_code=0)
    two.heard(1, 1)
    monkeypatch.setattr(time, "time", lambda: START_S + 7.0)
    assert not two.lost()


def test_a_folder_that_was_copied_earlier_is_no_lost_machine(two: TwoMachines) -> None:
    two.more_steps(0, 5)
    two.heard(0, 31)
    two.heard(1, 1)
    assert not two.lost()


def test_a_rank_that_came_to_its_end_was_not_lost_with_its_machine(two: TwoMachines) -> None:
    two.writers[1].header["closed"] = 1
    two.heard(0, 31)
    two.heard(1, 1)
    assert not two.lost()


def test_one_machine_is_compared_with_nobody(two: TwoMachines) -> None:
    two.heard(1, 1)
    assert not two.lost()
