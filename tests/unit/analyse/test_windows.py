"""What holds in a part of a run: found where it is, and not where there is only noise."""

from __future__ import annotations

from collections.abc import Iterable
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
from pyddpdiag.analyse.step_matrix import StepMatrix
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.windows import STEPS, sustained
from pyddpdiag.model import Finding
from pyddpdiag.pipeline import load_report


def test_a_stretch_is_found_to_the_step_and_one_window_is_not_enough() -> None:
    excess = np.full(120, -1.0)
    excess[31:79] = 1.0
    span = sustained(excess)
    assert span is not None and (span.begin, span.end, span.lasting) == (31, 79, False)
    assert span.words(np.arange(120)) == "in steps 31 to 78"
    excess[31:] = 1.0
    span = sustained(excess)
    assert span is not None and span.words(np.arange(120)) == "from step 31 on"
    one = np.full(120, -1.0)
    one[STEPS : 2 * STEPS] = 1.0
    assert sustained(one) is None
    assert sustained(np.ones(23)) is None and sustained(np.full(120, np.nan)) is None


def test_the_more_windows_are_tried_the_longer_a_stretch_must_be() -> None:
    excess = np.full(STEPS * 1000, -1.0)
    excess[STEPS * 500 : STEPS * 502] = 1.0
    assert sustained(excess) is None
    excess[STEPS * 500 : STEPS * 504] = 1.0
    assert sustained(excess, 64) is not None


def write(
    folder: Path,
    *,
    late: range = range(0),
    waiting: range = range(0),
    exposed: range = range(0),
    steps: int = 100,
) -> None:
    """Steps of 40 ms; in some of them rank 1 is 10 ms late, both wait 20 ms for data, or 30 ms for buckets."""
    random = np.random.default_rng(5)
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    for step in range(steps):
        data = (20 if step in waiting else 0) * MS
        wire = (30 if step in exposed else 2) * MS
        own = [
            int((38 + random.normal(0, 0.5) + (10 if step in late and rank else 0)) * MS) for rank in range(2)
        ]
        arrived = now + data + max(own)
        for writer, mine in zip(writers, own, strict=True):
            writer.step(step, now, now + data, arrived + wire)
            writer.backward(step, now + data, now + data + mine, arrived + wire)
            writer.bucket(
                2 * step, now + data + mine // 2, arrived - 9 * MS, arrived - 8 * MS, reference=1, step=step
            )
            writer.bucket(2 * step + 1, now + data + mine, arrived, arrived + wire, reference=2, step=step)
        now = arrived + wire
    for writer in writers:
        writer.write(folder)


@pytest.mark.parametrize(
    ("times", "kind", "rank", "each_ms"),
    [
        ("late", "late_rank", 1, 10.0),
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
    assert found.evidence["until_step"] == (90 if until == 91 else None)
    assert found.cost_ms == pytest.approx(each_ms * (until - 51) / 99, rel=0.1)
    assert ("from step 51 on" if until == 100 else "in steps 51 to 90") in report.verdict.line


def test_what_the_whole_run_shows_is_reported_once(tmp_path: Path) -> None:
    write(tmp_path, late=range(30, 100), exposed=range(100))
    kinds = [finding.kind for finding in load_report(tmp_path).verdict.findings]
    assert sorted(kinds) == ["exposed_communication", "late_rank"]


def looked_at(steps: StepMatrix) -> Iterable[Finding]:
    """What the checks with windows say of these steps."""
    late = lateness(steps)
    unknown = UsageMatrix(*[np.full(steps.own.shape, np.nan)] * 5)
    view = cast(
        RunView,
        SimpleNamespace(
            judged=steps,
            exposure=exposure(steps),
            lateness=late,
            late_ranks=late_ranks(steps, late, unknown, {}),
            crowding=(),
            sidecars={},
            buckets=(),
        ),
    )
    for check in (late_rank, data_wait, exposed_communication):
        yield from check.CHECK.look(view)


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
