"""A rank that works alone again and again, beside what another one does once."""

from pathlib import Path

import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter

STEPS = 24


@pytest.mark.parametrize("incidents", [1, 2])
def test_what_another_rank_does_once_beside_it_hides_nothing(tmp_path: Path, incidents: int) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now, alone = 10**9, dict.fromkeys((4, 8, 12, 16, 20), 400 * MS)
    for step in range(STEPS):
        mine = alone.get(step, 0)
        for writer in writers:
            begin = now + (mine if writer.rank == 1 else 0)
            end = now + mine + 34 * MS
            writer.step(step, begin, begin, end)
            writer.add(3, times=(begin, begin, begin + 30 * MS, end, begin, begin + MS), step=step)
            writer.bucket(step, begin + 25 * MS, now + mine + 26 * MS, now + mine + 32 * MS, step=step)
        now += mine + 40 * MS
        # The other one has something to do before a barrier, in a step and after all.
        if step == STEPS - 1 or (step == 6 and incidents == 2):
            for writer in writers:
                begin = now + (0 if writer.rank == 1 else 600 * MS)
                writer.collective("gloo:barrier", begin, now + 601 * MS, step=step)
            now += 602 * MS
    found = [each for each in report_of(writers, tmp_path).verdict.findings if each.kind == "rank_alone"]
    assert [(each.rank, each.evidence["times"]) for each in found] == ([(1, 5)] if incidents == 1 else [])
