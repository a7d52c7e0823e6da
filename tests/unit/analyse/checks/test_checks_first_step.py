"""What a rank does alone before the first step: not its first pass, and no batch that is late as others are."""

from pathlib import Path

import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter

OPENED_NS = 1000 * MS
STEPS = 24


@pytest.mark.parametrize(
    ("late", "late_ms", "alone"), [("before", 1200, True), ("before", 800, False), ("forward", 1200, False)]
)
def test_neither_a_short_start_nor_a_long_first_pass_is_work_before_it(
    tmp_path: Path, late: str, late_ms: int, alone: bool
) -> None:
    writers = [RankWriter(rank, 2, monotonic_ns=OPENED_NS) for rank in range(2)]
    now = OPENED_NS
    for step in range(STEPS):
        extra = 0 if step else late_ms * MS
        for writer in writers:
            mine = 0 if writer.rank else extra
            begin = now + (mine if late == "before" else 0)
            end, met = now + mine + 30 * MS, now + extra + 30 * MS
            writer.step(step, now, now, met + 10 * MS)
            writer.add(
                3, times=(begin + 20 * MS, begin + 20 * MS, end, met + 5 * MS, begin, begin + MS), step=step
            )
            writer.bucket(step, end, met, met + 2 * MS, step=step)
        now += extra + 40 * MS
    found = {finding.kind for finding in report_of(writers, tmp_path).verdict.findings}
    assert ("rank_alone" in found) == alone, found


@pytest.mark.parametrize(("others", "alone"), [((), True), ((9, 17), False)])
def test_a_first_batch_that_comes_late_is_a_start_only_where_no_other_is_as_late(
    tmp_path: Path, others: tuple[int, ...], alone: bool
) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 1000 * MS
    for step in range(STEPS):
        late = {0: 0, **dict.fromkeys(others, 1)}.get(step)
        wait = 0 if late is None else 1200 * MS
        for writer in writers:
            begin = now + (wait if writer.rank == late else 0)
            writer.step(step, now, begin, now + wait + 40 * MS)
            writer.backward(step, begin, begin + 30 * MS, now + wait + 35 * MS)
            writer.bucket(step, begin + 25 * MS, now + wait + 26 * MS, now + wait + 32 * MS, step=step)
        now += wait + 40 * MS
    found = {finding.kind: finding for finding in report_of(writers, tmp_path).verdict.findings}
    assert ("rank_alone" in found) == alone, found
