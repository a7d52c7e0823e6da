"""The series as tables: durations, where the missing speed-up went, and the losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from pyddpdiag.output import Buffer
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
