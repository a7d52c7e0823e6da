"""What holds in a part of a run: found where it is, and not where there is only noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from support.trace_writer import MS, RankWriter

from pyddpdiag.analyse.checks import data_wait, exposed_communication, late_rank
from pyddpdiag.analyse.exposure import exposure
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.late_ranks import late_ranks
from pyddpdiag.analyse.lateness import lateness
from pyddpdiag.analyse.lines import RunLines
from pyddpdiag.analyse.step_matrix import StepMatrix
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.windows import stretches
from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report


def over(steps: int, *parts: tuple[int, int]) -> Float64:
    """Steps that are over the threshold in these parts only."""
    excess = np.full(steps, -1.0)
    for begin, end in parts:
        excess[begin:end] = 1.0
    return excess


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([(31, 79)], "in steps 31 to 78"),
        ([(31, 120)], "from step 31 on"),
        # Wherever it begins, and although a step in it is not over the threshold.
        ([(36, 60)], "in steps 36 to 59"),
        ([(31, 50), (51, 70)], "in steps 31 to 69"),
        ([(10, 30), (60, 80)], "in steps 10 to 29 and in steps 60 to 79"),
        ([(10, 30), (60, 80), (100, 120)], "in steps 10 to 29, in steps 60 to 79 and from step 100 on"),
        ([(0, 16), (40, 56), (72, 88), (100, 116)], "in 4 stretches between step 0 and step 115"),
    ],
)
def test_stretches_are_found_to_the_step(parts: list[tuple[int, int]], said: str) -> None:
    found = stretches(over(120, *parts))
    assert found is not None and found.words(np.arange(120)) == said


def test_noise_beside_a_stretch_is_no_part_of_it() -> None:
    excess = over(120, (40, 80)) * 50.0
    excess[36:40] = excess[80:83] = 0.5
    found = stretches(excess)
    assert found is not None and found.words(np.arange(120)) == "in steps 40 to 79"


def test_a_stretch_is_longer_than_chance_makes_it() -> None:
    """The longest run of heads in 59 throws of 2 coins, by recursion over the throws, is 14 in less than 1%."""

    def at_least(run: int) -> float:
        none = [1.0] * run
        for throws in range(run, 60):
            first = 2.0**-run if throws == run else 2.0 ** -(run + 1) * none[throws - run - 1]
            none.append(none[-1] - first)
        return 1.0 - none[59] ** 2

    assert at_least(14) < 0.01 < at_least(12)
    assert stretches(over(59, (20, 34)), 2) is not None and stretches(over(59, (20, 33)), 2) is None
    assert stretches(np.full(120, np.nan)) is None and stretches(np.ones(9)) is None


def test_the_more_is_looked_at_the_longer_a_stretch_must_be() -> None:
    assert stretches(over(12000, (6000, 6020))) is None
    assert stretches(over(12000, (6000, 6030)), 64) is not None


def test_noise_at_the_bar_has_stretches_in_one_of_a_hundred_runs() -> None:
    random = np.random.default_rng(3)
    runs = [[stretches(random.normal(size=120), 2) for _ in range(2)] for _ in range(400)]
    assert sum(any(run) for run in runs) <= 8


def write(
    folder: Path,
    *,
    late: range = range(0),
    waiting: range = range(0),
    exposed: range = range(0),
    slow_batches: Sequence[Sequence[int]] = ((), ()),
    slow_ms: int = 250,
    data_ms: int = 0,
    late_ms: int = 20,
    wired: float = 0.0,
    steps: int = 100,
) -> None:
    """Steps of 40 ms; in some of them rank 1 is `late_ms` late, both wait 20 ms for data, or 30 ms for buckets.

    `slow_batches`: the steps whose batch comes `slow_ms` late, rank by rank; all others take `data_ms`.
    `wired`: the ranks are on two hosts, and where buckets wait rank 0's link is so many times as slow.
    """
    random = np.random.default_rng(5)
    writers = [RankWriter(rank, 2, capacity=2**13) for rank in range(2)]
    busy_us = [0, 0]
    ends = "10.0.0.1:4000", "10.0.0.2:5000"
    names = "|".join(ends), "|".join(reversed(ends))
    for writer, name in zip(writers, names, strict=True):
        if wired:
            writer.connection_name(name)
    now = 10**9
    for step in range(steps):
        data = [
            (20 if step in waiting else slow_ms if step in slow else data_ms) * MS for slow in slow_batches
        ]
        wire = (30 if step in exposed else 2) * MS
        own = [
            int((38 + random.normal(0, 0.5) + (late_ms if step in late and rank else 0)) * MS)
            for rank in range(2)
        ]
        arrived = now + max(each + mine for each, mine in zip(data, own, strict=True))
        for writer, begin, mine in zip(writers, (now + each for each in data), own, strict=True):
            writer.step(step, now, begin, arrived + wire)
            writer.backward(step, begin, begin + mine, arrived + wire)
            writer.bucket(
                2 * step, begin + mine // 2, arrived - 9 * MS, arrived - 8 * MS, reference=1, step=step
            )
            writer.bucket(2 * step + 1, begin + mine, arrived, arrived + wire, reference=2, step=step)
        now = arrived + wire
        for rank, writer in enumerate(writers):
            busy_us[rank] += round(1000 * (wired if step in exposed and not rank else 1))
            if wired:
                sent = (step + 1) * 100_000
                writer.reading(names[rank], now, bytes_sent=sent, bytes_acked=sent, busy_us=busy_us[rank])
    for writer in writers:
        writer.write(folder)


@pytest.mark.parametrize(
    ("times", "kind", "rank", "each_ms"),
    [
        ("late", "late_rank", 1, 20.0),
        ("waiting", "data_wait", None, 20.0),
        ("exposed", "exposed_communication", None, 30.0),
    ],
)
@pytest.mark.parametrize("until", [91, 100])
def test_what_begins_in_the_middle_is_found_with_its_steps(
    tmp_path: Path, times: str, kind: str, rank: int | None, each_ms: float, until: int
) -> None:
    write(tmp_path, **{times: range(51, until)})  # type: ignore[arg-type]
    report = load_report(tmp_path)
    (found,) = report.verdict.findings
    assert (found.kind, found.rank, found.confidence) == (kind, rank, "medium")
    assert found.since_step == 51
    assert found.evidence["until_step"] == found.until_step == (90 if until == 91 else None)
    assert found.evidence["since_time"] and ("until_time" in found.evidence) == (until == 91)
    assert found.cost_ms == pytest.approx(each_ms * (until - 51) / 99, rel=0.1)
    assert ("from step 51 on" if until == 100 else "in steps 51 to 90") in report.verdict.line


@pytest.mark.parametrize(
    ("late_ms", "since", "steps", "confidence"),
    [(10, 51, 100, "low"), (10, 560, 1000, "low"), (15, 51, 100, "medium")],
)
def test_a_little_lateness_for_some_seconds_may_be_by_what_ran_beside_it(
    tmp_path: Path, late_ms: int, since: int, steps: int, confidence: str
) -> None:
    """Nothing here says what the other rank waits for a core."""
    write(tmp_path, late=range(since, steps), late_ms=late_ms, steps=steps)
    (found,) = load_report(tmp_path).verdict.findings
    assert (found.kind, found.rank, found.confidence) == ("late_rank", 1, confidence)


def test_batches_that_come_late_now_on_one_rank_and_now_on_another_are_found(tmp_path: Path) -> None:
    """A tenth of the batches, which no median shows; of one rank's loader alone another check tells."""
    late = ([5, 11, 24, 39, 52, 63, 70, 88], [9, 17, 31, 45, 58, 74, 81, 95])
    write(tmp_path / "all", slow_batches=late)
    (found,) = load_report(tmp_path / "all").verdict.findings
    assert (found.kind, found.rank, found.evidence["times"]) == ("data_wait", None, 16)
    assert found.cost_s == pytest.approx(4.0, rel=0.05) and found.confidence != "low"
    write(tmp_path / "one", slow_batches=(late[0] + late[1], []))
    (found,) = load_report(tmp_path / "one").verdict.findings
    assert (found.kind, found.rank) == ("episodic_rank", 0)
    # Three long batches are an incident.
    write(tmp_path / "few", slow_batches=([20], [50, 80]))
    assert "data_wait" not in [found.kind for found in load_report(tmp_path / "few").verdict.findings]
    # Unless they take a third of the time: too few to tell how often they come, and too dear to be silent.
    write(tmp_path / "dear", slow_batches=([20], [50, 80]), slow_ms=1000)
    (found,) = load_report(tmp_path / "dear").verdict.findings
    assert (found.kind, found.rank, found.confidence) == ("data_wait", None, "low")
    assert found.evidence["times"] == 3 and found.cost_s == pytest.approx(3.0, rel=0.05)


def test_batches_that_all_take_their_time_are_not_late_now_and_then(tmp_path: Path) -> None:
    """Ten take longer, and most of the waiting is for all others."""
    write(tmp_path, slow_batches=(range(5, 95, 18), range(9, 95, 18)), data_ms=7, slow_ms=45)
    (found,) = load_report(tmp_path).verdict.findings
    assert (found.kind, found.rank) == ("data_wait", None) and "now and then" not in found.message
    assert found.evidence["data_wait_ms"] == pytest.approx(7.0)


def test_a_link_that_becomes_slow_is_slow_over_all(tmp_path: Path) -> None:
    write(tmp_path, exposed=range(36, 100), wired=3.0)
    (found,) = load_report(tmp_path).verdict.findings
    assert (found.kind, found.rank, found.peer) == ("slow_link", 0, 1)


def test_what_becomes_exposed_over_links_that_stay_as_they_are_is_no_links_fault(tmp_path: Path) -> None:
    write(tmp_path, exposed=range(36, 100), wired=1.0)
    (found,) = load_report(tmp_path).verdict.findings
    assert found.kind == "exposed_communication" and "800 Mbit/s" in found.message


def test_what_the_whole_run_shows_is_told_once(tmp_path: Path) -> None:
    write(tmp_path, late=range(30, 100), exposed=range(100))
    kinds = [finding.kind for finding in load_report(tmp_path).verdict.findings]
    assert sorted(kinds) == ["exposed_communication", "late_rank"]


def looked_at(steps: StepMatrix) -> Iterable[Finding]:
    """What the checks with windows say of these steps."""
    late = lateness(steps)
    unknown = UsageMatrix(*[np.full(steps.own.shape, np.nan)] * 7)
    view = cast(
        RunView,
        SimpleNamespace(
            judged=steps,
            exposure=exposure(steps),
            lateness=late,
            late_ranks=late_ranks(steps, late, unknown, unknown.run_delay, {}, RunLines({})),
            late_in_past=(),
            crowding=(),
            sidecars={},
            buckets=(),
        ),
    )
    for check in (late_rank.CHECK, data_wait.CHECK, exposed_communication.CHECKS[1]):
        yield from check.look(view)


def heavy(random: np.random.Generator, middle: float, shape: tuple[int, int]) -> Float64:
    """Times with a long tail, some of it in bursts over several steps, as on a machine with other load."""
    times = middle * np.exp(random.normal(0.0, 0.15, shape))
    times += middle * 0.05 * np.abs(random.standard_t(1.5, shape))
    for _ in range(random.poisson(shape[0] / 60)):
        begin, rank = int(random.integers(shape[0])), int(random.integers(shape[1]))
        times[begin : begin + int(random.integers(2, 9)), rank] *= random.uniform(1.1, 2.0)
    return times


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_healthy_noise_with_a_heavy_tail_gives_no_finding(ranks: int) -> None:
    """Exposed 4%, data wait 3% of a step, own times that vary by 15% and more: nothing in 200 runs each."""
    alarms = []
    for seed in range(200):
        random = np.random.default_rng(1000 * ranks + seed)
        count = int(random.integers(24, 600))
        own, data = heavy(random, 35.0, (count, ranks)), heavy(random, 1.2, (count, ranks))
        exposed = heavy(random, 1.6, (count, ranks))
        wall = np.repeat(own.max(axis=1, keepdims=True), ranks, axis=1) + exposed
        steps = StepMatrix(tuple(range(ranks)), np.arange(count), wall, data, exposed, own)
        alarms += [(seed, finding.kind, finding.confidence) for finding in looked_at(steps)]
    assert alarms == []
