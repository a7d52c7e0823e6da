from pathlib import Path

import pytest
from support.trace_writer import MS, RankWriter, write_training

from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.view import RunView
from pyddpdiag.trace.clock import ClockOffset, align
from pyddpdiag.trace.run import Run, open_run


def taken_in(run: Run) -> Intake:
    intake = Intake()
    for trace in run.ranks:
        intake.take(trace)
    return intake


def aligned(folder: Path) -> tuple[ClockOffset, ...]:
    run = open_run(folder)
    return align(run, taken_in(run).merged)


def test_same_clock_is_exact(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3)
    assert aligned(tmp_path) == (ClockOffset(0, 0),) * 3


def test_other_clock_is_found_within_its_bounds(tmp_path: Path) -> None:
    true = 7_000_000_000
    write_training(tmp_path, clocks={1: ("other", true, 300_000)}, wire_ms=1.0, queue_ms=0.2, jitter_ms=0.5)
    zero, one = aligned(tmp_path)
    assert zero == ClockOffset(0, 0)
    # Moving the rank back onto the first one's clock undoes what the writer added.
    assert one.uncertainty_ns is not None
    assert abs(one.offset_ns + true) <= one.uncertainty_ns <= 3 * MS


def test_wrong_wall_clock_is_corrected_by_causality(tmp_path: Path) -> None:
    true, wall_error = 7_000_000_000, 3_600_000_000_000
    write_training(tmp_path, clocks={1: ("other", true, wall_error)}, wire_ms=1.0)
    one = aligned(tmp_path)[1]
    assert one.uncertainty_ns is not None and not one.inconsistent
    assert abs(one.offset_ns + true) <= one.uncertainty_ns <= 2 * MS


def test_bounds_are_exact_on_a_hand_made_trace(tmp_path: Path) -> None:
    """Rank 0 runs from 100 to 200, rank 1 from 1000 to 1100 by its own clock: -1000 <= offset <= -800."""
    first = RankWriter(0, 2, clock_identity=b"a")
    first.bucket(0, 100, 100, 200)
    first.write(tmp_path)
    second = RankWriter(1, 2, clock_identity=b"b", wall_ns=first_wall() + 10**12)
    second.bucket(0, 1000, 1000, 1100)
    second.write(tmp_path)
    # The wall clocks say +10^12, so the upper bound it is, and the lower one may be as far away as 200 ns.
    assert aligned(tmp_path)[1] == ClockOffset(-800, 200)


def test_wall_clocks_that_are_centuries_apart_overflow_nothing(tmp_path: Path) -> None:
    for rank, wall_ns in enumerate((0, 2**63 - 1, 0)):
        writer = RankWriter(rank, 3, clock_identity=b"clock %d" % rank, wall_ns=wall_ns)
        writer.bucket(0, 1, 2, 2**61)
        writer.write(tmp_path)
    run = open_run(tmp_path)
    intake = taken_in(run)
    assert max(abs(clock.offset_ns) for clock in align(run, intake.merged)) + 2**61 < 2**63
    found = RunView(run, intake).occurrences
    assert found.complete.all()
    # An overflow would come back with the other sign.
    assert (found.total_ms >= 0).all() and (found.arrival_ms >= 0).all()


def first_wall() -> int:
    return 1_700_000_000_000_000_000


def test_ranks_on_one_clock_get_the_same_offset(tmp_path: Path) -> None:
    clocks = {rank: ("right", 5_000_000_000, 1000 * rank) for rank in (2, 3)}
    write_training(tmp_path, world_size=4, clocks=clocks)
    offsets = [clock.offset_ns for clock in aligned(tmp_path)]
    assert offsets[0] == offsets[1] == 0
    assert offsets[2] == offsets[3] != 0


def test_third_clock_narrows_the_bounds(tmp_path: Path) -> None:
    """Ranks 0 and 2 never meet, but both meet rank 1."""
    a, b = 11, 22
    writers = [RankWriter(rank, 3, clock_identity=b"clock %d" % rank) for rank in range(3)]
    for writer, groups in zip(writers, ((a,), (a, b), (b,)), strict=True):
        for group in groups:
            members = [0, 1] if group == a else [1, 2]
            writer.sidecar["groups"].append({"id": f"{group:016x}", "name": str(group), "ranks": members})
            writer.bucket(0, 100 * MS, 100 * MS, 101 * MS, group=group)
    for writer in writers:
        writer.write(tmp_path)
    assert aligned(tmp_path)[2].uncertainty_ns == 2 * MS


def test_clocks_that_drift_are_called_inconsistent(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2, clock_identity=b"clock %d" % rank) for rank in range(2)]
    for sequence in range(3):
        begin = (1 + sequence) * 1000 * MS
        writers[0].bucket(sequence, begin, begin, begin + MS)
        late = begin + sequence * 10 * MS
        writers[1].bucket(sequence, late, late, late + MS)
    for writer in writers:
        writer.write(tmp_path)
    one = aligned(tmp_path)[1]
    assert one.inconsistent
    assert one.uncertainty_ns == pytest.approx(9 * MS)


def test_nothing_in_common_bounds_nothing(tmp_path: Path) -> None:
    for rank in range(2):
        RankWriter(rank, 2, clock_identity=b"clock %d" % rank).write(tmp_path)
    assert aligned(tmp_path)[1].uncertainty_ns is None


def test_each_clock_is_moved_before_they_are_compared(tmp_path: Path) -> None:
    """Clock b is 900 to 1000 ns ahead: moved by the wall clocks' difference, rank 1 came 30 ns after rank 0."""
    for rank, begin in enumerate((100, 1030)):
        wall_ns = first_wall() - (900 if rank else 0)
        writer = RankWriter(rank, 2, clock_identity=b"ab"[rank : rank + 1], wall_ns=wall_ns)
        writer.bucket(0, begin, begin, begin + 100)
        writer.write(tmp_path)
    run = open_run(tmp_path)
    found = RunView(run, taken_in(run)).occurrences
    assert found.arrival_ms.tolist() == [30e-6]
    assert found.total_ms.tolist() == [130e-6]
