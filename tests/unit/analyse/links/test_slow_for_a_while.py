"""A link that is slow in a part of the run only."""

from __future__ import annotations

from pathlib import Path

from support.reported import findings
from support.trace_writer import MS, RankWriter
from support.wired import watch


def test_a_link_that_is_slow_for_a_while(tmp_path: Path) -> None:
    """Steps of 100 ms, of which 60 are exposed from step 120 on: a fifth of the run, in which rank 1 sends slowly."""
    writers = [RankWriter(rank, 3) for rank in range(3)]
    now = 2_000 * MS
    for step in range(200):
        exposed = 60 if 120 <= step < 160 else 2
        for writer in writers:
            writer.step(step, now, now, now + 100 * MS)
            writer.backward(step, now, now + (100 - exposed) * MS, now + 100 * MS)
            writer.bucket(step, now + 30 * MS, now + 30 * MS, now + 100 * MS, step=step)
        now += 100 * MS
    for rank, writer in enumerate(writers):
        slow = [4 if 12 <= reading * 0.5 < 16 and rank == 1 else 1 for reading in range(40)]
        watch(
            writer,
            f"10.0.0.{rank + 1}:5",
            f"10.0.0.{(rank - 1) % 3 + 1}:6",
            [(100, 0)] * 40,
            busy=1.0,
            each=slow,
        )
        watch(writer, f"10.0.0.{rank + 1}:6", f"10.0.0.{(rank + 1) % 3 + 1}:5", [(100, 0)], sent=0)
        writer.write(tmp_path)
    found = next(one for one in findings(tmp_path) if one.kind == "slow_link")
    assert (found.rank, found.peer, found.since_step, found.until_step) == (1, 0, 120, 159)
    assert "is slow in steps 120 to 159" in found.message
    assert found.cost_ms is not None and 8.0 < found.cost_ms < 12.0
