"""What is said of a run that is looked at while it runs: real processes, written traces."""

import itertools
import time

import pytest
from support.live_run import STEPS, Live, live_runs
from support.trace_writer import IN_FLIGHT, MS

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import exit_code
from pyddpdiag.system import processes
from pyddpdiag.trace.layout import Flag

live = live_runs()


def only(report: RunReport) -> Finding:
    (found,) = report.verdict.findings
    assert exit_code(report) == 1
    assert report.verdict.status == "findings"
    assert found.severity == "error" and found.evidence and found.change_mind and found.advice
    return found


def test_the_rank_that_never_began_what_the_others_wait_in_is_stuck_in_its_own_code(live: Live) -> None:
    run = live(3)
    run.wait(0, 1)
    found = only(run.report())
    assert (found.kind, found.rank, found.confidence, found.since_step) == ("rank_stuck", 2, "high", STEPS)
    assert "ranks 0, 1 wait in bucket" in found.message and "for 6" in found.message
    assert str(run.processes[2].pid) in found.advice


def test_a_run_that_goes_on_is_not_called_stuck(live: Live) -> None:
    """Two seconds without a record are ten steps, and less than the three that are waited for."""
    run = live(2, silent_ms=500)
    run.wait(0)
    report = run.report()
    assert [(found.kind, found.severity) for found in report.verdict.findings] == [
        ("operations_in_flight", "note")
    ]
    assert exit_code(report) == 0


def test_long_steps_are_waited_for_ten_times(live: Live) -> None:
    for silent_ms, kinds in ((40_000, ["operations_in_flight"]), (70_000, ["rank_stuck"])):
        run = live(2, silent_ms=silent_ms)
        for writer in run.writers:
            writer.records.clear()
            for step in range(STEPS):
                now = run.end - (STEPS - step) * 6_000 * MS
                writer.step(step, now, now, now + 5_990 * MS)
                writer.bucket(step, now + 45 * MS, now + 46 * MS, now + 52 * MS)
        run.wait(0)
        assert [found.kind for found in run.report().verdict.findings] == kinds


def test_a_rank_that_waits_in_something_else_is_behind(live: Live) -> None:
    run = live(3)
    run.wait(0, 2)
    run.writers[1].collective("gloo:barrier", run.end, 0, state=IN_FLIGHT)
    found = only(run.report())
    assert (found.kind, found.rank, found.since_step) == ("rank_behind", 1, STEPS)


def test_a_rank_that_closed_while_the_others_wait_is_behind(live: Live) -> None:
    run = live(2)
    run.wait(0)
    run.writers[1].header["closed"] = 1
    found = only(run.report())
    assert (found.kind, found.rank) == ("rank_behind", 1)


def test_a_rank_that_skipped_a_collective_of_the_users_own_is_behind(live: Live) -> None:
    run = live(3)
    for rank, number in itertools.product(range(3), range(4)):
        if (rank, number) != (1, 3):
            began = run.at(number)
            ended = began + MS if number < 3 else 0
            state = {} if ended else {"state": IN_FLIGHT}
            run.writers[rank].collective("gloo:all_reduce", began, ended, **state)
    found = only(run.report())
    assert (found.kind, found.rank, found.bucket) == ("rank_stuck", 1, None)
    assert "collective gloo:all_reduce" in found.message


def test_where_every_rank_began_it_is_the_transport(live: Live) -> None:
    run = live(2)
    run.wait(0, 1)
    found = only(run.report())
    assert (found.kind, found.rank, found.since_step) == ("transport_stalled", None, STEPS)
    assert "network between the hosts" in found.advice


def test_the_link_over_which_nothing_is_confirmed_any_more_is_named(live: Live) -> None:
    run = live(2)
    run.wait(0, 1)
    for rank, name in enumerate(("10.0.0.1:8000|10.0.0.2:7000", "10.0.0.2:7000|10.0.0.1:8000")):
        run.writers[rank].connection_name(name)
        for half in range(-8, 8):
            acked = 1000 * (half if rank == 0 else min(half, 0))
            run.writers[rank].reading(
                name, run.end + 500 * half * MS, bytes_acked=10_000 + acked, segments=10, unacked=40 * rank
            )
    found = only(run.report())
    assert (found.kind, found.rank, found.peer) == ("transport_stalled", 1, 0)
    assert "nothing that was sent over the link from rank 1 to rank 0 was confirmed any more" in found.message


def test_where_every_rank_began_it_in_shared_memory_no_network_is_to_blame(live: Live) -> None:
    run = live(2)
    run.wait(0, 1, flags=Flag.SHARED)
    found = only(run.report())
    assert found.kind == "transport_stalled" and "through shared memory" in found.advice
    # Over several hosts, Gloo carries it between them.
    run.writers[1].sidecar["host"] = "another"
    assert "network between the hosts" in only(run.report()).advice


def test_a_paused_rank_may_have_begun_what_it_has_no_record_of(live: Live) -> None:
    run = live(2)
    run.wait(0)
    run.writers[1].header["skipped"] = 7
    report = run.report()
    assert [found.kind for found in report.verdict.findings] == ["operations_in_flight"]
    assert report.verdict.status == "cannot_tell" and "no rank has recorded anything" in report.verdict.line
    assert exit_code(report) == 2


def test_a_standstill_in_which_nobody_waits_is_not_called_healthy(live: Live) -> None:
    report = live(2).report()
    assert (report.verdict.status, report.verdict.findings) == ("cannot_tell", ())
    assert "evaluate" in report.verdict.line


def test_a_stopped_rank_is_named(live: Live) -> None:
    run = live(3)
    run.wait(0, 2)
    run.writers[1].look(run.end + MS, ("train.py", 9, "load"))
    run.processes[1].suspend()
    deadline = time.monotonic() + 20
    while not getattr(processes.find(run.processes[1].pid), "stopped", False):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found = only(run.report())
    run.processes[1].resume()
    assert (found.kind, found.rank, found.confidence) == ("rank_stopped", 1, "certain")
    assert found.where == "train.py:9 in load" and "last seen at train.py:9 in load" in found.message
    assert str(run.processes[1].pid) in found.advice


def test_a_killed_rank_is_lost_and_named_at_once(live: Live) -> None:
    """No error has been reported yet, and nothing stands still for long: the process is gone."""
    run = live(3, silent_ms=100)
    run.wait(0, 2)
    run.kill(1)
    found = only(run.report())
    assert (found.kind, found.rank, found.confidence) == ("rank_lost", 1, "high")
    assert "the process is gone" in found.message and "ranks 0, 2 still wait in" in found.message


def test_of_dead_ranks_the_one_that_the_others_waited_for_is_named(live: Live) -> None:
    run = live(3)
    run.wait(0, 2)
    run.kill()
    found = only(run.report())
    assert (found.kind, found.rank) == ("rank_lost", 1)


def test_of_dead_ranks_the_one_that_never_began_what_failed_on_the_others_is_named(live: Live) -> None:
    """Nothing is in flight: the others' own all-reduce failed when the first rank died, and they ended of that."""
    run = live(3)
    for rank, number in itertools.product(range(3), range(4)):
        if (rank, number) != (1, 3):
            run.writers[rank].collective("gloo:all_reduce", run.at(number), run.at(number) + MS)
    run.kill()
    found = only(run.report())
    assert (found.kind, found.rank, found.confidence) == ("rank_lost", 1, "medium")
    assert "gloo:all_reduce, which it never began, failed on ranks 0, 2" in found.message


@pytest.mark.parametrize("calls", [(4, 4, 4), (4, 2, 4), (4, 3, 2)], ids=str)
def test_collectives_of_some_ranks_only_say_nothing_of_dead_ranks(calls: tuple[int, ...], live: Live) -> None:
    """An orderly script without close(), perhaps with groups of its own."""
    run = live(3)
    for rank, number in itertools.product(range(3), range(4)):
        if number < calls[rank]:
            run.writers[rank].collective("gloo:all_reduce", run.at(number), run.at(number) + MS)
    run.kill()
    assert "rank_lost" not in [found.kind for found in run.report().verdict.findings]


def test_a_job_that_died_in_an_operation_is_not_healthy(live: Live) -> None:
    run = live(2)
    run.wait(0, 1)
    run.kill()
    found = only(run.report())
    assert (found.kind, found.rank, found.confidence) == ("rank_lost", None, "medium")


def test_a_script_that_ended_without_closing_its_recorder_is_no_crash(live: Live) -> None:
    run = live(2)
    run.kill()
    report = run.report()
    assert (report.verdict.status, report.verdict.findings) == ("healthy", ())


def test_a_rank_that_has_not_closed_yet_and_runs_is_not_lost(live: Live) -> None:
    run = live(2, silent_ms=100)
    run.writers[0].header["closed"] = 1
    report = run.report()
    assert (report.verdict.status, report.verdict.findings) == ("healthy", ())


def test_a_dead_rank_with_an_error_of_its_own_is_a_victim(live: Live) -> None:
    run = live(2)
    run.wait(0)
    writer = run.writers[0]
    writer.records.pop()
    ticket = writer.bucket(STEPS, run.end - MS, run.end, run.end, flags=1)
    writer.error(ticket, "Connection reset by peer")
    run.kill()
    report = run.report()
    first, second = report.verdict.findings
    assert (first.kind, first.rank, first.confidence) == ("rank_lost", 1, "high")
    # The one that was lost, and the one that its error reached.
    assert (second.kind, second.rank, second.evidence["reached"]) == ("operation_failed", 1, 0)


def test_a_rank_that_noted_no_end_was_killed_and_one_that_did_was_not(live: Live) -> None:
    """Nothing was in flight, nobody closed, and no rank reports an error."""
    run = live(2)
    for writer, ended in zip(run.writers, (1, 0), strict=True):
        writer.header.update(minor=2, ended=ended)
    run.kill()
    found = only(run.report())
    assert (found.kind, found.rank, found.evidence["ended"]) == ("rank_lost", 1, None)


def test_an_exception_is_blamed_only_where_no_rank_was_killed(live: Live) -> None:
    run = live(3)
    run.kill()
    for ends, lost in (((1, 2, 1), 1), ((2, 2, 0), 2)):
        for writer, ended in zip(run.writers, ends, strict=True):
            writer.header.update(minor=2, ended=ended)
        found = only(run.report())
        assert (found.kind, found.rank) == ("rank_lost", lost)
        # Only the system kills for want of memory.
        assert ("memory use" in found.advice) == (ends[lost] == 0)


def test_a_rank_that_left_in_good_order_while_others_wait_for_it_is_named(live: Live) -> None:
    run = live(3)
    run.wait(0, 2)
    for writer, ended in zip(run.writers, (0, 1, 0), strict=True):
        writer.header.update(minor=2, ended=ended)
    run.kill(1)
    found = only(run.report())
    assert (found.kind, found.rank) == ("rank_lost", 1)
    assert "too early" in found.message
