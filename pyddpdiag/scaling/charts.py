"""A series as charts, and as a page: speed-up, where each run's time went, and loss against epochs and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyddpdiag.model.words import seconds
from pyddpdiag.report.charts.chart import Axis, Chart, Line, Panel, plain, stacked
from pyddpdiag.report.page import Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.scaling.model import Run
from pyddpdiag.scaling.table import durations_table, losses_table, missing_table, tables

_PARTS: Final = {
    "compute_s": ("compute", "compute"),
    "data_wait_s": ("waiting for data", "data"),
    "exposed_s": ("exposed communication", "wire"),
    "other_s": ("tests, checkpoints and the rest", "rest"),
}


def page(runs: Sequence[Run]) -> str:
    """Title, charts and tables, as one HTML file without anything outside it."""
    title = f"Scaling of the training on {runs[0].result.dataset}"
    return whole_page(title, [Section("Charts", charts(runs)), Section("Tables", tables(runs))])


def charts(runs: Sequence[Run]) -> list[Chart]:
    """All charts of a series that have something to show."""
    found = [
        _speedups(runs),
        _split(runs),
        _losses(runs, "loss-by-epoch", "Training loss by epoch", "epoch", 0),
        _losses(runs, "loss-by-time", "Training loss by time", "seconds", 1),
    ]
    return [chart for chart in (found if len(runs) > 1 else found[1:]) if not chart.empty]


def _speedups(runs: Sequence[Run]) -> Chart:
    worlds = [run.world_size for run in runs]
    ideal = [world / worlds[0] for world in worlds]
    series = [
        Line("measured", worlds, plain(run.speed_up(runs[0]) for run in runs), "accent", marks=True),
        Line("ideal", worlds, ideal, "ideal", "dot"),
    ]
    return Chart(
        "speed-up",
        "Speed-up by number of ranks",
        f"How much faster than {runs[0].name()} the whole training is.",
        [Panel(series, Axis("speed-up", from_zero=True), height=260)],
        Axis("ranks", ticks=worlds),
        durations_table(runs),
    )


def _split(runs: Sequence[Run]) -> Chart:
    values = {part: [getattr(run.split, part) or 0.0 for run in runs] for part in _PARTS}
    return Chart(
        "time",
        "Where the time of each run went",
        "Seconds of the whole training, means over the ranks.",
        [stacked(_PARTS, values, [run.name() for run in runs], seconds)],
        Axis("seconds"),
        missing_table(runs) if len(runs) > 1 else durations_table(runs),
    )


def _losses(runs: Sequence[Run], name: str, title: str, axis: str, column: int) -> Chart:
    series = [
        Line(
            run.name(),
            plain(point[column] for point in run.curve()),
            plain(point[2] for point in run.curve()),
            str(place),
            marks=True,
        )
        for place, run in enumerate(runs)
    ]
    return Chart(
        name,
        title,
        "After each epoch, for each number of ranks.",
        [Panel(series, Axis("training loss"), height=260)],
        Axis(axis),
        losses_table(runs),
    )
