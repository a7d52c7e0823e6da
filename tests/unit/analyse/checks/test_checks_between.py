"""What goes on between steps and epochs: a rank that works alone, all ranks that pause."""

from pathlib import Path

import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.findings import Verdict
from pyddpdiag.model.report import RunReport
from pyddpdiag.report.charts.chart import Spans
from pyddpdiag.report.run.page import charts
from pyddpdiag.report.run.verdict import account_chart, figures

S = 10**9
OPENED_NS = 20 * S
"""When the recorders were opened: 10 s after the processes began, where anything is known of that."""
NO_BATCH = 16
STEPS = 24


def write(
    folder: Path,
    *,
    alone_ms: dict[int, float] | None = None,
    all_ms: float = 0.0,
    data_ms: float = 0.0,
    barrier: bool = True,
    epoch: int = 12,
    set_up: tuple[dict[str, object], ...] = ({}, {}),
    core_share: float = 0.0,
) -> RunReport:
    """Two ranks, steps of 40 ms. After each epoch a rank works alone for so long, and the others wait in a barrier.

    `all_ms`: every rank does something else there; `data_ms`: the wait for the first batch of the next epoch.
    `set_up`: what each rank's sidecar has in `start_up`. `core_share`: part of the work alone that waits for a core.
    """
    writers = [RankWriter(rank, 2, monotonic_ns=OPENED_NS, wall_ns=1_000 * S) for rank in range(2)]
    for writer, seen in zip(writers, set_up, strict=True):
        writer.sidecar |= {"start_up": seen, "process_started_s": 990.0} if seen else {}
    now, waited = OPENED_NS, 0
    for step in range(STEPS):
        waits = int((data_ms if step and step % epoch == 0 else 1.0) * MS)
        for writer in writers:
            begin, done = now + waits, now + waits + 30 * MS
            writer.step(step, now, begin, done + 10 * MS)
            writer.look(begin + 5 * MS, ("train.py", 30, "main"))
            writer.add(3, times=(begin, begin, done, done + 5 * MS, begin, begin + MS), step=step)
            writer.bucket(step, done - 5 * MS - writer.rank * MS, done, done + 2 * MS, step=step)
            if core_share:
                writer.usage(step, done, thread_cpu=step * 20 * MS, run_delay=0 if writer.rank else waited)
        now += waits + 40 * MS
        if step % epoch == epoch - 1:
            lone = int((alone_ms or {}).get(step, 0.0) * MS)
            waited += int(lone * core_share)
            for writer in writers:
                writer.step(step + 1, now, 0, now, flags=NO_BATCH)
                if barrier and lone:
                    mine = now + (0 if writer.rank else lone)
                    writer.collective("gloo:barrier", mine, now + lone + MS, step=step)
            for writer in writers if all_ms else ():
                for at in range(now, now + int(all_ms * MS), 50 * MS):
                    writer.look(at, ("train.py", 7, "encode"))
            now += int(all_ms * MS) + lone + 2 * MS
    return report_of(writers, folder)


def test_a_rank_that_evaluates_alone_while_the_others_wait_in_a_barrier(tmp_path: Path) -> None:
    report = write(tmp_path, alone_ms={11: 1500.0, 23: 1500.0})
    found = report.verdict.findings[0]
    assert (found.kind, found.rank, found.confidence) == ("rank_alone", 0, "high")
    assert found.cost_s == pytest.approx(3.0, rel=0.02)
    assert report.verdict.line.startswith(
        "The ranks stood still for 3.0 of 4.0 s: rank 0 works alone between epochs"
    )
    assert found.evidence["times"] == 2 and found.evidence["share"] == pytest.approx(0.75, abs=0.02)
    # The page begins with the bars of whole lives, with that of the rank marked.
    chart = next(iter(charts(report, None)))
    assert chart.name == "account" and "rank 0 works alone" in chart.panels[0].callouts[0].text
    (marked,) = (each for each in chart.panels[0].series if isinstance(each, Spans) and each.marked)
    assert [bar.lane for bar in marked.bars] == [0] and marked.name in ("between epochs", "after the steps")


@pytest.mark.parametrize(
    "times, each_ms, core_share, cost_s",
    [((5, 11, 17), 90, 0, 0.27), ((11, 17), 900, 0.6, 1.8), ((5, 11), 90, 0, 0), ((11, 17), 900, 0.95, 0)],
)
def test_what_works_alone_is_charged_with_its_waits_for_a_core_and_short_work_if_chance_does_not_make_it(
    tmp_path: Path, times: tuple[int, ...], each_ms: float, core_share: float, cost_s: float
) -> None:
    report = write(tmp_path, alone_ms=dict.fromkeys(times, each_ms), epoch=6, core_share=core_share)
    found = [(one.rank, one.cost_s) for one in report.verdict.findings if one.kind == "rank_alone"]
    assert found == ([(0, pytest.approx(cost_s, rel=0.05))] if cost_s else [])


def test_without_a_collective_the_others_wait_in_the_next_step(tmp_path: Path) -> None:
    """The first bucket of the next step is where they wait; no loader marks the end of an epoch."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(STEPS):
        alone = 800 * MS if step in (8, 16) else 0
        for writer in writers:
            begin = now + (alone if writer.rank == 1 else 0)
            arrived, end = begin + 25 * MS, now + alone + 34 * MS
            writer.look(now + 7 * MS, ("train.py", 30, "main"))
            for at in range(now + 20 * MS, begin, 50 * MS):
                writer.look(at, ("train.py", 9, "evaluate"), "time.sleep")
            writer.step(step, begin, begin, end)
            writer.add(3, times=(begin, begin, begin + 30 * MS, end, begin, begin + MS), step=step)
            writer.bucket(step, arrived, now + alone + 26 * MS, now + alone + 32 * MS, step=step)
        now += alone + 40 * MS
    report = report_of(writers, tmp_path)
    found = report.verdict.findings[0]
    seen = (found.kind, found.rank, found.evidence["times"], found.confidence)
    assert seen == ("rank_alone", 1, 2, "medium")
    assert "works alone between steps, 2 times" in found.message
    assert (
        found.where == "train.py:9 in evaluate"
        and "is at train.py:9 in evaluate (time.sleep)." in found.message
    )
    assert found.advice.startswith("Look at train.py:9 in evaluate") and "recorder" not in found.advice
    saved = figures(report)[3]
    assert "of a mean step (" in saved.about and saved.about.endswith("if rank 1 did not work alone")
    share = float(saved.about.partition("(")[2].partition("%")[0])
    assert 50 < share <= 100


def test_a_rank_that_waits_for_a_batch_does_not_work_alone(tmp_path: Path) -> None:
    """DDP sends its new buckets' layout in the second step: the others wait there, and in no work of the rank's."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(STEPS):
        late = 400 * MS if step == 1 else 0
        for writer in writers:
            begin = now + (late if writer.rank == 1 else 0)
            passes = now + late
            end = passes + 34 * MS
            writer.step(step, now, begin, end)
            if late:
                writer.collective("gloo:broadcast", begin, passes + MS, step=step)
            times = (passes + MS, passes + MS, passes + 30 * MS, end, passes, passes + MS)
            writer.add(3, times=times, step=step)
            writer.bucket(step, passes + 25 * MS, passes + 26 * MS, passes + 32 * MS, step=step)
        now += late + 40 * MS
    assert "rank_alone" not in {each.kind for each in report_of(writers, tmp_path).verdict.findings}


def test_the_bars_mark_where_a_rank_works_alone_though_no_loader_marks_the_steps(tmp_path: Path) -> None:
    """The steps follow each other without a gap, and the last evaluation is the smallest part of what it does alone."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(STEPS):
        alone = 800 * MS if step in (8, 16) else 0
        for writer in writers:
            mine = now + (0 if writer.rank else alone)
            if alone:
                writer.collective("gloo:barrier", mine, now + alone + MS, step=step)
            begin, end = now + alone + 2 * MS, now + alone + 40 * MS
            writer.step(step, now, now, end)
            writer.add(3, times=(begin, begin, begin + 30 * MS, end, begin, begin + MS), step=step)
            writer.bucket(step, begin + 25 * MS, begin + 26 * MS, end - 5 * MS, step=step)
            writer.usage(step, end, (step + 1) * 20 * MS, 0)
        now += alone + 40 * MS
    for writer in writers:
        writer.collective("gloo:barrier", now + (0 if writer.rank else 300 * MS), now + 301 * MS)
    report = report_of(writers, tmp_path)
    assert [(each.kind, each.rank) for each in report.verdict.findings] == [("rank_alone", 0)]
    chart = account_chart(report)
    assert chart is not None
    (marked,) = (each for each in chart.panels[0].series if isinstance(each, Spans) and each.marked)
    assert (marked.name, [bar.lane for bar in marked.bars]) == ("asleep", [0])


def test_work_before_the_first_step_by_one_rank(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    for writer in writers:
        writer.collective("gloo:barrier", (3000 if writer.rank == 0 else 1001) * MS, 3001 * MS)
        for step in range(12):
            now = (3010 + 40 * step) * MS
            writer.step(step, now, now, now + 40 * MS)
            writer.backward(step, now, now + 30 * MS, now + 35 * MS)
            writer.bucket(step, now + 25 * MS, now + 26 * MS, now + 32 * MS, step=step)
    found = report_of(writers, tmp_path).verdict.findings[0]
    assert (found.kind, found.rank, found.cost_ms) == ("rank_alone", 0, None)
    assert "before the first step" in found.message and found.cost_s == pytest.approx(2.0, rel=0.01)


def seen(busy_s: float, waited_s: float, line: str = "train.py:7", line_s: float = 0.0) -> dict[str, object]:
    """As a rank notes what it did between its process group and its first module."""
    return {
        "set_up_seen_ns": int((busy_s + waited_s) * S),
        "set_up_waited_ns": int(waited_s * S),
        "set_up_line": line,
        "set_up_line_ns": int((line_s or busy_s) * S),
    }


def test_work_before_the_first_module_by_one_rank_is_named_with_its_line(tmp_path: Path) -> None:
    """It unpacks a data set, and the others wait in a barrier that no recorder has seen."""
    found = write(tmp_path, barrier=False, set_up=(seen(6.0, 0.0), seen(0.2, 5.8))).verdict.findings[0]
    assert (found.kind, found.rank, found.confidence) == ("rank_alone", 0, "high")
    assert found.cost_s == pytest.approx(5.8, rel=0.02)
    assert "works alone before the first step, once" in found.message
    assert found.message.endswith("There it mostly is at train.py:7.") and found.where == "train.py:7"
    assert found.advice.startswith("Prepare data")


def joined(after_s: float, wait_s: float) -> dict[str, object]:
    """As a rank notes when it joined its process group, so long after the process began."""
    begin = OPENED_NS + int((after_s - 10.0) * S)
    return {"rendezvous_begin_ns": begin, "rendezvous_end_ns": begin + int(wait_s * S)}


def test_a_rank_that_imports_for_long_before_it_joins_is_named(tmp_path: Path) -> None:
    found = write(tmp_path, barrier=False, set_up=(joined(2.0, 6.1), joined(8.0, 0.1))).verdict.findings[0]
    assert (found.kind, found.rank, found.where) == ("rank_alone", 1, None)
    assert found.cost_s == pytest.approx(6.0, rel=0.02)


@pytest.mark.parametrize(
    "set_up",
    [
        (joined(2.0, 6.1), joined(2.1, 0.1)),
        (joined(8.0, 0.1), joined(8.2, 0.1)),
        (joined(2.0, 6.1), {}),
        (joined(2.0, 6.1), {"rendezvous_begin_ns": 5, "rendezvous_end_ns": 2}),
    ],
    ids=["started-later", "all-ranks-do", "other-not-known", "impossible"],
)
def test_a_rank_that_did_nothing_for_long_before_it_joined_is_not(
    tmp_path: Path, set_up: tuple[dict[str, object], ...]
) -> None:
    report = write(tmp_path, barrier=False, set_up=set_up)
    assert "rank_alone" not in {each.kind for each in report.verdict.findings}


def test_a_line_at_which_all_ranks_are_is_not_that_of_the_one_that_is_alone(tmp_path: Path) -> None:
    """On a busy machine to import takes longer than what one rank does then."""
    alone = seen(15.0, 0.0, "train.py:1", 9.0) | {"set_up_line_2": "train.py:7", "set_up_line_2_ns": 6 * S}
    found = write(
        tmp_path, barrier=False, set_up=(alone, seen(9.0, 6.0, "train.py:1", 8.5))
    ).verdict.findings[0]
    assert (found.kind, found.rank, found.where) == ("rank_alone", 0, "train.py:7")


def test_a_line_that_explains_little_is_not_named(tmp_path: Path) -> None:
    set_up = (seen(6.0, 0.0, line_s=2.0), seen(0.2, 5.8))
    found = write(tmp_path, barrier=False, set_up=set_up).verdict.findings[0]
    assert found.kind == "rank_alone" and found.where is None and "mostly" not in found.message


@pytest.mark.parametrize(
    "set_up",
    [
        (seen(6.0, 0.0), seen(5.6, 0.4)),
        (seen(0.9, 0.0), seen(0.1, 0.8)),
        (seen(6.0, 0.0), {}),
        (seen(6.0, 0.0), {"set_up_seen_ns": S, "set_up_waited_ns": 2 * S}),
        (seen(6.0, 0.0), {"set_up_seen_ns": "6", "set_up_waited_ns": -1}),
    ],
    ids=["all-ranks-do", "short", "other-not-known", "impossible", "no-numbers"],
)
def test_set_up_that_no_rank_does_alone_is_no_finding(
    tmp_path: Path, set_up: tuple[dict[str, object], ...]
) -> None:
    report = write(tmp_path, barrier=False, set_up=set_up)
    assert "rank_alone" not in {each.kind for each in report.verdict.findings}


@pytest.mark.parametrize(
    "innocent", [{}, {"alone_ms": {11: 60.0, 23: 60.0}}, {"all_ms": 30.0}], ids=["none", "short", "all short"]
)
def test_short_work_between_epochs_is_no_finding(tmp_path: Path, innocent: dict[str, object]) -> None:
    report = write(tmp_path, **innocent)  # type: ignore[arg-type]
    assert not {"rank_alone", "pause"} & {each.kind for each in report.verdict.findings}


def test_what_every_rank_does_between_epochs_is_a_pause_of_all(tmp_path: Path) -> None:
    report = write(tmp_path, all_ms=900.0, epoch=6)
    (found,) = (each for each in report.verdict.findings if each.kind in ("pause", "rank_alone"))
    assert (found.kind, found.rank, found.evidence["times"]) == ("pause", None, 3)
    assert (
        found.where == "train.py:7 in encode" and "of the pauses is at train.py:7 in encode" in found.message
    )
    assert (
        found.cost_s == pytest.approx(2.7, rel=0.02)
        and "persistent_workers" not in found.advice.split(":")[0]
    )


def test_a_loader_that_starts_its_workers_again_at_each_epoch(tmp_path: Path) -> None:
    report = write(tmp_path, data_ms=1500.0, all_ms=300.0, epoch=8)
    found = report.verdict.findings[0]
    assert (found.kind, found.evidence["times"], found.confidence) == ("pause", 2, "high")
    assert report.verdict.line.startswith("All ranks pause together between epochs")
    assert found.advice.startswith("DataLoader(..., persistent_workers=True)")
    assert found.evidence["share"] == pytest.approx(3.6 / 4.6, abs=0.05)


@pytest.mark.parametrize(("data_ms", "kinds"), [(90.0, []), (160.0, ["pause"])])
def test_a_pause_between_epochs_counts_from_a_tenth_of_the_time(
    tmp_path: Path, data_ms: float, kinds: list[str]
) -> None:
    report = write(tmp_path, data_ms=data_ms)
    assert [each.kind for each in report.verdict.findings] == kinds


def test_a_cost_of_the_whole_run_is_that_of_its_steps(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(31):
        for writer in writers:
            mine = now + (40 if writer.rank else 20) * MS
            writer.step(step, now, now, now + 45 * MS)
            writer.backward(step, now, mine, now + 44 * MS)
            writer.bucket(step, mine, now + 40 * MS, now + 42 * MS, step=step)
        now += 45 * MS
    found = report_of(writers, tmp_path).verdict.findings[0]
    assert found.kind == "late_rank" and found.cost_ms == pytest.approx(20.0, rel=0.01)
    assert found.cost_s == pytest.approx(30 * 0.020, rel=0.01)


def test_no_step_is_healthy_of_which_nobody_knows_a_tenth(tmp_path: Path) -> None:
    """Each rank waits for the other in turns: rank 0 in one broadcast, rank 1 in the next one."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    for step in range(30):
        now = 10**9 + step * 100 * MS
        for writer in writers:
            begin = now + (10 if writer.rank else 40) * MS
            writer.step(step, now, now, now + 96 * MS)
            writer.backward(step, now + 71 * MS, now + 92 * MS, now + 95 * MS)
            writer.collective("gloo:broadcast", begin, begin + 30 * MS, step=step)
            writer.bucket(step, now + 90 * MS, now + 91 * MS, now + 93 * MS, step=step)
        for writer in writers:
            # The other one is in its own code meanwhile.
            begin = now + (40 if writer.rank else 10) * MS
            writer.collective("gloo:gather", begin, begin + MS // 2, step=step)
    verdict = report_of(writers, tmp_path).verdict
    assert verdict.status != "healthy"


def write_long_steps(
    folder: Path, extra_ms: dict[int, float], *, usual_ms: float = 0.0, phase: str = "", look: bool = False
) -> Verdict:
    """60 steps of 40 ms and `usual_ms`; some take longer, on all ranks. A phase holds what they take beyond 40 ms."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(60):
        begin = now + int(extra_ms.get(step, usual_ms) * MS)
        for writer in writers:
            if look:
                for at in range(now, begin, 50 * MS):
                    writer.look(at, ("train.py", 9, "evaluate"))
                writer.look(begin + 7 * MS, ("train.py", 31, "main"))
            if phase and begin > now:
                writer.phase(phase, now, begin)
            writer.step(step, now, now, begin + 40 * MS)
            writer.add(
                3, times=(begin, begin, begin + 30 * MS, begin + 39 * MS, begin, begin + MS), step=step
            )
            writer.bucket(step, begin + 29 * MS, begin + 30 * MS, begin + 32 * MS, step=step)
        now = begin + 42 * MS
    return report_of(writers, folder).verdict


@pytest.mark.parametrize("look", [False, True])
def test_a_run_without_a_cause_says_what_it_lost_and_where(tmp_path: Path, look: bool) -> None:
    """Two steps of 60 take 2 s more on all ranks, with nothing to tell why: too few for a pause."""
    verdict = write_long_steps(tmp_path, {20: 1000.0, 33: 1000.0}, look=look)
    assert verdict.status == "cannot_tell"
    assert "of the time (2.00 s) went by in 2 steps" in verdict.line
    mostly = ", mostly at train.py:9 in evaluate" if look else ""
    assert f"in which all ranks were busy in their own code{mostly}." in verdict.line


@pytest.mark.parametrize("innocent", ["first steps", "evaluation", "small phase"])
def test_what_is_known_to_take_long_leaves_a_run_healthy(tmp_path: Path, innocent: str) -> None:
    verdict = {
        "first steps": lambda: write_long_steps(tmp_path, {0: 5000.0, 1: 4000.0, 2: 3000.0}),
        "evaluation": lambda: write_long_steps(tmp_path, {20: 2500.0, 40: 600.0}, phase="evaluation"),
        "small phase": lambda: write_long_steps(tmp_path, {}, usual_ms=8.0, phase="log"),
    }[innocent]()
    assert (verdict.status, verdict.findings) == ("healthy", ())
