"""The first screen of a run's page: four numbers, and where the time goes with what is to blame marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.trace_writer import MS, RankWriter, write_training

from pyddpdiag.analyse.anatomy import OWN, anatomy
from pyddpdiag.analyse.details import step_to_open
from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_details, load_report
from pyddpdiag.report.charts.chart import Area, Chart, Points, Spans, colour
from pyddpdiag.report.run import steps, waterfall
from pyddpdiag.report.run.page import charts
from pyddpdiag.report.run.verdict import figures, where_chart

SLEEPS, PHASE, COMPUTES = 15.0, 40.0, 20.0


def readings(writer: RankWriter, cpu_ms: float, steps: int = 24, core_ms: float = 0.0) -> None:
    """What a rank's thread spent on a core in each step, and waited for one."""
    for step in range(steps):
        at = 2_000_000_000 + (step + 1) * 40 * MS
        writer.usage(step, at, int((step + 1) * cpu_ms * MS), int((step + 1) * core_ms * MS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 1 needs 15 ms more in each step, all of which it sleeps; rank 0 writes a checkpoint in two of 24 steps."""
    folder = tmp_path_factory.mktemp("first") / "run"
    for writer in write_training(folder, world_size=3, steps=24, late_ms={1: SLEEPS}, jitter_ms=0.2):
        readings(writer, COMPUTES, core_ms=0.0)
        begins = {int(r["step"]): int(r["times"][1]) for r in writer.records if r["kind"] == 4}
        if writer.rank == 0:
            for step in (7, 15):
                writer.phase("checkpoint", begins[step], begins[step] + int(COMPUTES / 2 * MS))
        writer.write(folder)
    return folder


def bars(chart: Chart) -> dict[str, dict[int, float]]:
    """What each part takes by row."""
    lanes = {lane: place for place, lane in enumerate(chart.panels[0].y.at)}
    found: dict[str, dict[int, float]] = {}
    for series in chart.panels[0].series:
        assert isinstance(series, Spans)
        for bar in series.bars:
            found.setdefault(series.name, {})[lanes[bar.lane]] = bar.end - bar.start
    return found


def test_a_rank_that_sleeps_is_not_drawn_as_computing_and_is_marked(folder: Path) -> None:
    report, details = load_details(folder)
    first = report.verdict.findings[0]
    assert (first.kind, first.rank, first.cause) == ("late_rank", 1, "blocked")
    chart = where_chart(report, details)
    assert chart is not None
    drawn = bars(chart)
    assert drawn["compute"][1] == pytest.approx(COMPUTES, abs=1) and drawn["asleep"][1] == pytest.approx(
        SLEEPS, abs=1
    )
    assert max(drawn["asleep"].get(0, 0.0), drawn["asleep"].get(2, 0.0)) < 1
    marked = [series for series in chart.panels[0].series if isinstance(series, Spans) and series.marked]
    assert [(series.name, len(series.bars)) for series in marked] == [("asleep", 1)]
    (callout,) = chart.panels[0].callouts
    assert callout.text.startswith("rank 1, asleep: 1") and callout.lane not in chart.panels[0].y.at


def test_a_phase_is_not_drawn_as_computing_and_has_its_own_colour(folder: Path) -> None:
    report, details = load_details(folder)
    assert details is not None
    found = anatomy(report.steps, report.cube)
    spent = found.parts["phase"][:, 0]
    assert sorted(found.first[spent > 1].tolist()) == [7, 15] and spent.max() == pytest.approx(COMPUTES / 2)
    whole = sum(np.nan_to_num(found.parts[name][:, 0]) for name in ("compute", *OWN))
    mine = report.steps.take(report.steps.judged & (report.steps.rank == 0))
    assert whole == pytest.approx(mine.compute_ms)
    for roles in (set(waterfall.COLOURS.values()), set(steps.COLOURS.values())):
        assert len({colour(role) for role in roles}) == len(roles)


def test_the_picture_of_one_step_opens_on_one_that_is_typical_of_the_finding(folder: Path) -> None:
    report, details = load_details(folder)
    assert details is not None and details.opens == step_to_open(report)
    assert details.shown[details.opens] == "typical of the first finding"
    walls = {step: report.steps.wall_ms[report.steps.step == step].max() for step in details.shown}
    assert walls[details.opens] < max(walls.values())
    drawn = [chart for chart in charts(report, details) if chart.name.startswith("waterfall")]
    assert [chart.name for chart in drawn] == [f"waterfall-{details.opens}"]
    assert drawn[0].panels[0].y.labels[1].startswith("rank 1, asleep: 1")
    assert load_details(folder, step=3)[1].opens == 3  # type: ignore[union-attr]


def test_the_four_numbers_are_those_of_the_report(folder: Path) -> None:
    report = load_report(folder)
    step, exposed, late, saved = figures(report)
    walls = report.steps.wall_ms[report.steps.judged]
    assert step.value == f"{np.median(walls):.1f} ms" and f"mean {walls.mean():.1f}" in step.about
    # Of the last bucket, 0.5 ms in the queue and 1 ms on the wire.
    assert exposed.value == "1.50 ms" and exposed.about.startswith("4% of the step")
    cost = report.verdict.findings[0].cost_ms
    assert cost is not None and cost == pytest.approx(SLEEPS, abs=1)
    assert late.value == saved.value == f"{cost:.1f} ms" and saved.about.endswith("if rank 1 kept pace")


def test_a_cure_that_saves_less_than_can_be_measured_is_none(folder: Path) -> None:
    report = load_report(folder)
    (found,) = report.verdict.findings
    for kind, name, cure in (
        ("loopback", "shared_memory_saves_ms", "in shared memory"),
        ("exposed_communication", "half_saves_ms", "with gradients in 16 bits"),
        ("collective_per_step", "saved_ms", "with values reduced now and then"),
    ):
        for saves, value in ((0.64, "-"), (6.4, "6.40 ms")):
            one = replace(found, kind=kind, rank=None, evidence={name: saves})
            (*_, saved) = figures(replace(report, verdict=replace(report.verdict, findings=(one,))))
            assert saved.value == value and saved.about.endswith(
                cure if value != "-" else "nothing found to cure"
            )


def test_without_readings_of_the_processor_nobody_says_that_a_rank_computes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", str(folder), "--json"])
    saved = tmp_path / "report.json"
    saved.write_text(capsys.readouterr().out, encoding="utf-8")
    chart = where_chart(*load_details(saved))
    assert chart is not None
    drawn = bars(chart)
    assert "compute" not in drawn and drawn["compute or asleep"][1] == pytest.approx(COMPUTES + SLEEPS, abs=1)


def test_what_holds_up_all_ranks_is_marked_on_all(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3, steps=20, wire_ms=12.0, jitter_ms=0.4)
    report, details = load_details(tmp_path)
    chart = where_chart(report, details)
    assert chart is not None and "on the wire" in chart.panels[0].callouts[0].text
    marked = [series for series in chart.panels[0].series if isinstance(series, Spans) and series.marked]
    assert [len(series.bars) for series in marked] == [3]
    late, saved = figures(report)[2:]
    assert "most often, for" in late.about and saved.name == "Could be saved"


def test_ranks_that_are_alike_are_one_bar(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=40, steps=8, late_ms={7: SLEEPS}, jitter_ms=0.2)
    report, details = load_details(tmp_path)
    drawn = {chart.name.partition("-")[0]: chart for chart in charts(report, details)}
    names = ["39 ranks: 0 to 6, 8 to 39", "rank 7"]
    assert list(drawn["where"].panels[0].y.labels) == names
    assert [panel.title for panel in drawn["step"].panels] == names
    assert all(isinstance(series, Area) for panel in drawn["step"].panels for series in panel.series)
    assert list(drawn["waterfall"].panels[0].y.labels) == ["rank 0, like 38 more", "rank 7"]
    assert list(drawn["account"].panels[0].y.labels) == ["rank 7", "39 others (mean)"]


@pytest.mark.parametrize("buckets", [3, 24])
def test_the_bandwidth_of_few_buckets_is_bars_and_of_many_points(tmp_path: Path, buckets: int) -> None:
    write_training(tmp_path, steps=8, buckets=buckets)
    chart = next(chart for chart in charts(*load_details(tmp_path)) if chart.name == "bandwidth")
    (series,) = chart.panels[0].series
    if buckets == 3:
        # Bars begin at 0: the longest one spans the picture.
        assert isinstance(series, Spans) and [bar.start for bar in series.bars] == [0.0] * 3
        assert chart.x.from_zero and chart.panels[0].height < 100
    else:
        assert isinstance(series, Points) and len(series.x) == buckets
