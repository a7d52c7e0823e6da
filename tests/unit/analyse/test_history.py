"""Ranks that were late in steps of which only sums are left."""

from pathlib import Path

import pytest
from support.reported import findings
from support.trace_writer import MS, write_training

HISTORY = 12
INTERVALS = 10
LENGTH = 16
STEP_MS = 20


def write_long(folder: Path, more_ms: float, *, waits_for_core: bool) -> None:
    """Two ranks; rank 1 needed more for its own part of each of 160 steps before the records begin."""
    for writer in write_training(folder):
        for record in writer.records:
            record["step"] += INTERVALS * LENGTH
        writer.header["overwritten"] = 5000
        for number in range(INTERVALS):
            begin = 1 * MS + number * LENGTH * STEP_MS * MS // 10
            more = more_ms if writer.rank == 1 else 0.0
            cpu, delay = (5.0, more) if waits_for_core else (5.0, 0.0)
            sums = (10.0 + more, 2.0, 0.5, 0.0, cpu, delay)
            writer.add(
                HISTORY,
                times=(
                    begin,
                    begin + LENGTH * STEP_MS * MS // 10,
                    *(int(each * LENGTH * MS) for each in sums),
                ),
                step=number * LENGTH,
                index=LENGTH,
                module=LENGTH,
                sequence=LENGTH,
            )
        writer.write(folder)


@pytest.mark.parametrize(
    ("waits_for_core", "cause", "confidence"), [(False, "blocked", "high"), (True, "core", "low")]
)
def test_a_rank_that_waited_for_cores_is_named_with_low_confidence(
    tmp_path: Path, waits_for_core: bool, cause: str, confidence: str
) -> None:
    """Nobody knows how busy its machine was then."""
    write_long(tmp_path, 8.0, waits_for_core=waits_for_core)
    [late] = findings(tmp_path, "late_rank")
    assert (late.rank, late.cause, late.confidence) == (1, cause, confidence)
    assert (late.since_step, late.until_step) == (0, INTERVALS * LENGTH - 1)
    assert late.cost_s == pytest.approx(8.0 * INTERVALS * LENGTH / 1e3) and late.cost_ms is None


def test_ranks_that_were_alike_are_not_named(tmp_path: Path) -> None:
    write_long(tmp_path, 0.5, waits_for_core=False)
    assert not findings(tmp_path, "late_rank")
