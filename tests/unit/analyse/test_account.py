"""Every second of a rank's life is filed under one part."""

from pathlib import Path

import pytest
from support.trace_writer import IN_FLIGHT, MS, RankWriter, write_training

from pyddpdiag.model.account import PARTS, RankAccount
from pyddpdiag.pipeline import load_report

S = 1000 * MS
NO_BATCH = 16


def accounts(folder: Path) -> tuple[RankAccount, ...]:
    found = load_report(folder).account
    for each in found:
        assert sum(each.part(name) for name in PARTS) == pytest.approx(each.wall_s, rel=0.01)
        assert all(each.part(name) >= 0.0 for name in PARTS)
        assert sum(each.phases.values()) == pytest.approx(each.phases_s, abs=1e-6)
    return found


def write_life(folder: Path) -> None:
    """Two ranks: 3 s of start-up, 2 epochs of 4 steps of 100 ms, each with 1 s of evaluation by rank 0, 0.5 s tail."""
    for rank in range(2):
        writer = RankWriter(rank, 2, monotonic_ns=4 * S, wall_ns=1_000 * S)
        writer.sidecar["process_started_s"] = 998.0  # so the process began at 2 s of the records' clock
        writer.sidecar["start_up"] = {
            "loaded_ns": 3 * S,
            "rendezvous_begin_ns": 3 * S,
            "rendezvous_end_ns": 3 * S + S // 2,
        }
        now, cpu, delay = 5 * S, 0, 0
        for step in range(8):
            begin, done = now + 10 * MS, now + 80 * MS
            writer.step(step, now, begin, now + 100 * MS)
            writer.add(3, times=(begin, begin, done, now + 95 * MS, begin, begin + MS), step=step)
            entered = done - (20 * MS if rank else 0)
            writer.bucket(step, entered, done, now + 90 * MS, step=step)
            cpu, delay = cpu + 40 * MS, delay + 5 * MS
            writer.usage(step, now + 95 * MS, cpu, delay)
            now += 100 * MS
            if step % 4 == 3:
                writer.step(step + 1, now, 0, now, flags=NO_BATCH)
                if rank == 0:
                    writer.phase("eval", now + 200 * MS, now + 1000 * MS)
                begin = now + 1000 * MS if rank == 0 else now
                writer.collective("gloo:barrier", begin, now + 1010 * MS, step=step)
                now += 1020 * MS
        writer.sidecar["ended_ns"] = now + 500 * MS
        writer.write(folder)


def test_a_life_from_the_start_of_the_process_to_its_end(tmp_path: Path) -> None:
    write_life(tmp_path)
    zero, one = accounts(tmp_path)
    assert zero.wall_s == one.wall_s == pytest.approx(3 + 0.8 + 2 * 1.02 + 0.5)
    assert (zero.imports_s, zero.rendezvous_s, zero.set_up_s) == pytest.approx((1.0, 0.5, 1.5))
    assert zero.first_steps_s == pytest.approx(0.1)
    steps = (0.1, 7 * 0.01, 7 * 0.04, 7 * 0.005, 7 * 0.01)
    parts = ("first_steps_s", "data_wait_s", "compute_s", "core_wait_s", "communication_s")
    assert [zero.part(name) for name in parts] == pytest.approx(steps)
    assert zero.blocked_s == pytest.approx(7 * 0.035)
    assert zero.phases == {"eval": pytest.approx(1.6)}
    assert (zero.collectives_between_s, one.collectives_between_s) == pytest.approx((0.02, 2.02))
    # The rest of 1020 ms; what comes after the last step is the tail.
    assert (zero.between_epochs_s, zero.tail_s) == pytest.approx((0.21, 0.21 + 0.5))
    assert one.between_epochs_s == pytest.approx(0.01)
    assert zero.unknown_s < 0.05 * zero.wall_s


def test_exposed_time_beyond_that_of_the_other_ranks_is_waiting_for_them(tmp_path: Path) -> None:
    write_training(tmp_path, late_ms={1: 10.0})
    zero, one = accounts(tmp_path)
    assert zero.communication_s == pytest.approx(one.communication_s)
    assert one.rank_wait_s == 0.0 and zero.rank_wait_s == pytest.approx(11 * 0.010, rel=0.05)


@pytest.mark.parametrize("step_records", [True, False])
def test_accounts_of_short_runs_without_a_known_start_add_up(tmp_path: Path, step_records: bool) -> None:
    write_training(tmp_path, steps=3, step_records=step_records)
    for each in accounts(tmp_path):
        assert (each.imports_s, each.unknown_s) == (0.0, pytest.approx(0.0))


def test_what_the_ring_has_lost_is_not_known(tmp_path: Path) -> None:
    write_training(tmp_path, steps=600, buckets=1)  # the ring holds 1024 records, three a step
    for each in accounts(tmp_path):
        assert each.unknown_s > 0.3 * each.wall_s and each.set_up_s == 0.0


def test_a_trace_without_steps_is_not_known(tmp_path: Path) -> None:
    writer = RankWriter(heartbeat_ns=3 * S)
    writer.bucket(0, 2 * S, 0, 0, state=IN_FLIGHT)
    writer.write(tmp_path)
    (only,) = accounts(tmp_path)
    assert (only.wall_s, only.unknown_s) == pytest.approx((2.0, 2.0))


def test_a_later_recorder_of_a_process_begins_with_itself(tmp_path: Path) -> None:
    writer = RankWriter(heartbeat_ns=3 * S)
    writer.sidecar["process_started_s"] = 1_699_990_000.0  # no marks of a start-up
    writer.write(tmp_path)
    (only,) = accounts(tmp_path)
    assert only.wall_s == pytest.approx(2.0)
