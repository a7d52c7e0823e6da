"""Collectives other than buckets: what they take of a step, and gradient accumulation in the table of ranks."""

from pathlib import Path

import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report


def write(
    folder: Path,
    calls: list[float],
    *,
    name: str = "gloo:all_reduce",
    beside: float = 0.0,
    marked: bool = True,
    by: str = "",
) -> RunReport:
    """A run with steps of 20 ms and a collective after each, of so many ms on each rank.

    `beside`: one that runs during the backward pass. `marked`: the loop is recorded. `by`: what made the recorder.
    """
    writers = [RankWriter(rank, len(calls)) for rank in range(len(calls))]
    now = 10**9
    for step in range(30):
        done = now + 20 * MS
        after = done + int(max(calls) * MS)
        for writer, took in zip(writers, calls, strict=True):
            writer.backward(step, now + 8 * MS, now + 18 * MS, done)
            writer.bucket(step, now + 17 * MS, now + 18 * MS, now + 19 * MS)
            if took:
                for look in range(done + MS // 2, after, 20 * MS):
                    writer.look(look, ("train.py", 31, "gather"))
                # All leave it at the same time: whoever comes early waits.
                writer.collective(name, after - int(took * MS), after, step=step, bytes=32_000_000, dtype=1)
            if beside:
                writer.collective("gloo:broadcast", now + 9 * MS, now + int((9 + beside) * MS), step=step)
            if marked:
                writer.step(step, now, now, after)
        now = after
    for writer in writers:
        writer.sidecar["recorded_by"] = by
    return report_of(writers, folder)


@pytest.mark.parametrize("marked", [True, False])
def test_a_collective_that_eats_the_step_is_named(tmp_path: Path, marked: bool) -> None:
    report = write(tmp_path, [57.0, 57.0], marked=marked)
    (found,) = report.verdict.findings
    assert (found.kind, found.confidence, found.rank) == ("other_collectives", "high", None)
    assert found.cost_ms == pytest.approx(57.0)
    assert found.evidence["name"] == "gloo:all_reduce"
    assert (found.evidence["calls_per_step"], found.evidence["bytes"]) == (1.0, 32_000_000)
    assert "gloo:all_reduce, 1 call of 32.0 MB a step" in found.message
    assert found.where == "train.py:31 in gather" and "at train.py:31 in gather" in found.message
    for rank in report.ranks:
        assert rank.other_ms.median == pytest.approx(57.0)
        assert rank.compute_ms.median == pytest.approx(19.0)


@pytest.mark.parametrize(
    ("by", "how"),
    [
        ("", "DistributedDataParallel(model, broadcast_buffers=False)"),
        ("lightning", "DDPStrategy(broadcast_buffers=False)"),
    ],
)
def test_a_broadcast_of_ddps_own_cannot_be_made_asynchronous(tmp_path: Path, by: str, how: str) -> None:
    (found,) = write(tmp_path, [30.0, 30.0], name="gloo:broadcast", by=by).verdict.findings
    assert found.kind == "other_collectives" and found.evidence["name"] == "gloo:broadcast"
    assert how in found.advice and "Unless the script calls them" in found.advice
    assert "async_op" not in found.advice + found.change_mind


def test_a_call_of_the_scripts_own_may_be_begun_earlier(tmp_path: Path) -> None:
    (found,) = write(tmp_path, [30.0, 30.0], name="gloo:allgather").verdict.findings
    assert "async_op=True" in found.advice and "broadcast_buffers" not in found.advice


def test_whoever_waits_in_a_collective_for_a_late_rank_is_not_held_up_by_it(tmp_path: Path) -> None:
    report = write(tmp_path, [30.0, 0.5])
    assert "other_collectives" not in {found.kind for found in report.verdict.findings}
    assert report.ranks[0].other_ms.median == pytest.approx(30.0)


def broadcast(folder: Path, *, takes: float, root_late: float = 0.0) -> RunReport:
    """Before each step of 40 ms rank 0 sends its buffers: it leaves at once, and rank 1 has them `takes` ms later."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(30):
        sent = now + int(root_late * MS)
        here = sent + int(takes * MS)
        done = here + 40 * MS
        writers[0].collective("gloo:broadcast", sent, sent + MS // 2, step=step, bytes=8_000_000, dtype=1)
        writers[1].collective("gloo:broadcast", now, here, step=step, bytes=8_000_000, dtype=1)
        for writer, begin in zip(writers, (sent, here), strict=True):
            writer.backward(step, begin + 20 * MS, begin + 38 * MS, done)
            writer.bucket(step, begin + 38 * MS, here + 38 * MS, done)
            writer.step(step, now, now, done)
        now = done
    for writer in writers:
        writer.sidecar["host"] = "one"
    return report_of(writers, folder)


def test_a_broadcast_costs_what_its_receiver_waits_once_the_root_has_begun(tmp_path: Path) -> None:
    """Rank 0 spends 0.5 ms there and then waits for rank 1, which spends 31: no rank is late, and it is not healthy."""
    found = broadcast(tmp_path, takes=31.0).verdict.findings[0]
    seen = (found.kind, found.confidence, found.evidence["name"])
    assert seen == ("other_collectives", "high", "gloo:broadcast")
    assert found.cost_ms == pytest.approx(31.0, abs=1.0)


def test_a_receiver_that_waits_for_a_late_root_is_not_held_up_by_the_broadcast(tmp_path: Path) -> None:
    kinds = {found.kind for found in broadcast(tmp_path, takes=1.0, root_late=30.0).verdict.findings}
    assert "other_collectives" not in kinds


def test_a_step_of_which_a_part_is_in_nothing_that_is_known_is_not_called_healthy(tmp_path: Path) -> None:
    """The loop sleeps 20 of 40 ms in a step between two collectives of which the ranks recorded one as too long."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(30):
        done = now + 40 * MS
        for rank, writer in enumerate(writers):
            begun = now + (20 if rank else 0) * MS
            writer.collective("gloo:gather", begun - 19 * MS if rank else now, begun + MS, step=step)
            writer.backward(step, begun + 4 * MS, begun + 19 * MS, done)
            writer.bucket(step, begun + 19 * MS, now + 39 * MS, done)
            writer.step(step, now, now, done)
        now = done
    verdict = report_of(writers, tmp_path).verdict
    assert verdict.status == "cannot_tell" and "in nothing that was recorded" in verdict.line


def test_a_collective_beside_backward_takes_nothing_from_the_step(tmp_path: Path) -> None:
    report = write(tmp_path, [0.0, 0.0], beside=6.0)
    assert (report.verdict.status, report.ranks[0].other_ms.median) == ("healthy", 0.0)


def test_what_may_be_a_tenth_of_the_step_is_an_open_question(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(8):
        took = (1 if step % 2 else 6) * MS
        done = now + 20 * MS
        for writer in writers:
            writer.backward(step, now + 8 * MS, now + 18 * MS, done)
            writer.bucket(step, now + 17 * MS, now + 18 * MS, now + 19 * MS)
            writer.collective("gloo:gather", done, done + took, step=step)
            writer.step(step, now, now, done + took)
        now = done + took
    verdict = report_of(writers, tmp_path).verdict
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert "other collectives than buckets (" in verdict.line and "a step) hold up" in verdict.line


def test_under_accumulation_the_table_of_ranks_has_one_basis(tmp_path: Path) -> None:
    """Four steps of 6 ms make one that synchronises, whose last takes 4 ms more for communication."""
    writer = RankWriter()
    now = 10**9
    for step in range(60):
        meets = step % 4 == 3
        end = now + (10 if meets else 6) * MS
        writer.step(step, now, now + MS, end)
        if meets:
            writer.backward(step, now + 3 * MS, now + 6 * MS, end)
            writer.bucket(step // 4, now + 5 * MS, now + 6 * MS, end, step=step)
        now = end
    report = report_of([writer], tmp_path)
    (rank,) = report.ranks
    assert (rank.steps, rank.micro_steps) == (60, 4)
    assert rank.wall_ms.median == pytest.approx(28.0)
    assert rank.data_wait_ms.median == pytest.approx(4.0)
    assert rank.exposed_ms.median == pytest.approx(4.0)
    assert rank.compute_ms.median == pytest.approx(20.0)
    # From the end of one synchronisation to the last bucket of the next.
    assert rank.own_ms.median == pytest.approx(23.0)


def test_a_run_without_buckets_is_told_what_can_be_seen(tmp_path: Path) -> None:
    """As FSDP trains: by collectives of its own."""
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for step in range(20):
            now = 10**9 + step * 40 * MS
            writer.step(step, now, now, now + 40 * MS)
            writer.collective("gloo:allgather", now, now + 10 * MS, step=step)
        writer.write(tmp_path)
    report = load_report(tmp_path)
    assert report.verdict.status == "cannot_tell"
    assert "FSDP" in report.verdict.line
    assert [row.name for row in report.other_collectives] == ["gloo:allgather"] * 2
