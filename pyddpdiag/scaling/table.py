"""The series as text: the table, where the missing speed-up went, and the losses."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.scaling.model import Run


def text(runs: Sequence[Run]) -> str:
    """Everything, for a terminal or a file; plain ASCII."""
    return "\n".join([*_durations(runs), "", *_missing(runs), "", *_losses(runs), ""])


def duration(seconds: float) -> str:
    """`56m 58s`; with tenths below a minute."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m {rest:02d}s" if hours else f"{minutes}m {rest:02d}s"


def _name(run: Run) -> str:
    if run.world_size > 1:
        return f"{run.world_size} ranks"
    return "1 rank" if run.result.buckets else "1 (no DDP)"


def _durations(runs: Sequence[Run]) -> list[str]:
    base = runs[0]
    lines = [
        f"{'':12}{'duration':>12}{'speed-up':>10}{'efficiency':>12}{'test accuracy':>15}{'last loss':>11}"
    ]
    for run in runs:
        last = run.result.history[-1]
        lines.append(
            f"{_name(run):12}{duration(run.duration_s):>12}{run.speed_up(base):>9.2f}x"
            f"{run.efficiency(base):>12.0%}{last.accuracy:>15.2%}{last.train_loss:>11.4f}"
        )
    return lines


def _missing(runs: Sequence[Run]) -> list[str]:
    """Per run: its duration minus the ideal one, and the parts of that."""
    base = runs[0]
    rows = [run for run in runs[1:]]
    if not rows:
        return ["One number of ranks: nothing to compare with."]
    lines = [
        f"Where the missing speed-up went: seconds beyond {_name(base)} divided by the growth in ranks "
        "(means over the ranks)",
        f"{'':12}{'ideal':>9}{'real':>9}{'missing':>9}  ={'compute':>9}{'data wait':>11}{'exposed':>9}{'other':>8}"
        f"   | all buckets: {'queue':>7}{'wire':>8}",
    ]
    for run in rows:
        growth = run.world_size / base.world_size
        ideal = base.duration_s / growth
        parts = [
            _beyond(run.split.compute_s, base.split.compute_s, growth),
            _beyond(run.split.data_wait_s, base.split.data_wait_s, growth),
            _beyond(run.split.exposed_s, base.split.exposed_s, growth),
            _beyond(run.split.other_s, base.split.other_s, growth),
        ]
        lines.append(
            f"{_name(run):12}{ideal:>9.2f}{run.duration_s:>9.2f}{run.duration_s - ideal:>9.2f}   "
            f"{_figure(parts[0], 9)}{_figure(parts[1], 11)}{_figure(parts[2], 9)}{_figure(parts[3], 8)}"
            f"   |              {_figure(run.split.queue_s, 7)}{_figure(run.split.wire_s, 8)}"
        )
    lines += [
        "compute: steps slower than their share, as on cores that the ranks share; exposed: waiting for gradients",
        "after backward; other: tests and checkpoints (without DDP they count as compute); queue and wire are of",
        "all buckets, most of it hidden behind backward where exposed is small.",
    ]
    return lines


def _beyond(mine: float | None, base: float | None, growth: float) -> float | None:
    return None if mine is None or base is None else mine - base / growth


def _figure(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:.2f}':>{width}}"


def _losses(runs: Sequence[Run]) -> list[str]:
    lines = [
        "Training loss, and seconds since the start, after each epoch",
        f"{'epoch':>7}" + "".join(f"{_name(run):>22}" for run in runs),
    ]
    curves = [run.curve() for run in runs]
    for number in range(max(len(curve) for curve in curves)):
        cells = []
        for curve in curves:
            if number < len(curve):
                cells.append(f"{curve[number][2]:>12.4f}{curve[number][1]:>9.1f}s")
            else:
                cells.append(f"{'-':>22}")
        lines.append(f"{number + 1:>7}" + "".join(cells))
    return lines
