"""A series as tables, charts and a page: durations, speed-up, where each run's time went, and the losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TextIO

from pyddpdiag.model.words import seconds
from pyddpdiag.output import Buffer
from pyddpdiag.report.charts.chart import Axis, Chart, Line, Panel, plain, stacked
from pyddpdiag.report.page import Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.tables import Cell, Table
from pyddpdiag.scaling.model import Run

_HEADS = {"compute_s": "compute", "data_wait_s": "data", "exposed_s": "exposed", "other_s": "other"}


def text(runs: Sequence[Run], target: TextIO | None = None) -> str:
    """Everything, with the signs that `target` can show; None: for a file in UTF-8."""
    file = Buffer(target)
    screen = screen_for(file)
    for table in tables(runs):
        screen.table(table)
    return file.getvalue().lstrip("\n")


def tables(runs: Sequence[Run]) -> list[Table]:
    """All tables of a series; a single number of ranks has nothing to compare with."""
    missing = [missing_table(runs)] if len(runs) > 1 else []
    return [durations_table(runs), *missing, losses_table(runs)]


def duration(seconds: float) -> str:
    """`56m 58s`; with tenths below a minute."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m {rest:02d}s" if hours else f"{minutes}m {rest:02d}s"


def durations_table(runs: Sequence[Run]) -> Table:
    """Durations, speed-up and efficiency."""
    base = runs[0]
    last = [run.result.history[-1] for run in runs]
    return Table(
        "Duration by number of ranks",
        {
            "run": [run.name() for run in runs],
            "duration": [duration(run.duration_s) for run in runs],
            "speed-up": [f"{run.speed_up(base):.2f}x" for run in runs],
            "efficiency": [f"{run.efficiency(base):.0%}" for run in runs],
            "test accuracy": [f"{epoch.accuracy:.2%}" for epoch in last],
            "last loss": [f"{epoch.train_loss:.4f}" for epoch in last],
        },
        1,
        note="" if len(runs) > 1 else "One number of ranks: nothing to compare with.",
    )


def missing_table(runs: Sequence[Run]) -> Table:
    """Per run: its duration minus the ideal one, and the parts of that."""
    base, rows = runs[0], runs[1:]
    growth = [run.world_size / base.world_size for run in rows]
    ideal = [base.duration_s / times for times in growth]
    columns: dict[str, Sequence[Cell]] = {
        "run": [run.name() for run in rows],
        "ideal": [f"{seconds:.2f}" for seconds in ideal],
        "real": [f"{run.duration_s:.2f}" for run in rows],
        "missing": [f"{run.duration_s - best:.2f}" for run, best in zip(rows, ideal, strict=True)],
    }
    for part in _HEADS:
        columns[_HEADS[part]] = [
            _figure(_beyond(getattr(run.split, part), getattr(base.split, part), times))
            for run, times in zip(rows, growth, strict=True)
        ]
    columns["all queue"] = [_figure(run.split.queue_s) for run in rows]
    columns["all wire"] = [_figure(run.split.wire_s) for run in rows]
    return Table(
        f"Where the missing speed-up went: seconds beyond {base.name()} divided by the growth in ranks "
        "(means over the ranks)",
        columns,
        1,
        note="missing = compute + data + exposed + other. compute: steps slower than their share, as on cores "
        "that the ranks share. exposed: waiting for gradients after backward. other: tests and checkpoints (without "
        "DDP they count as compute). all queue and all wire are of all buckets, most of which may be hidden.",
    )


def _beyond(mine: float | None, base: float | None, growth: float) -> float | None:
    return None if mine is None or base is None else mine - base / growth


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def losses_table(runs: Sequence[Run]) -> Table:
    """Loss and time after each epoch."""
    curves = [run.curve() for run in runs]
    epochs = range(max(len(curve) for curve in curves))
    columns: dict[str, Sequence[Cell]] = {"epoch": [str(number + 1) for number in epochs]}
    for run, curve in zip(runs, curves, strict=True):
        columns[run.name()] = [
            f"{curve[number][2]:.4f} {curve[number][1]:>8.1f}s" if number < len(curve) else "-"
            for number in epochs
        ]
    return Table("Training loss, and seconds since the start, after each epoch", columns, 0)


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
