"""Axes of a picture: from where to where they go, how numbers become pixels, and what is written beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pyddpdiag.report.charts.chart import Axis

Scale = Callable[[float], float]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most about so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def extent(values: Iterable[float | None], axis: Axis) -> tuple[float, float]:
    """From where to where an axis goes that shows these values."""
    if axis.labels:
        places = [*axis.at] or [*range(len(axis.labels))]
        known = [*places, *(value for value in values if value is not None)]
        return min(known) - 0.5, max(known) + 0.5
    known = [value for value in (*values, *axis.ticks) if value is not None and math.isfinite(value)]
    if axis.line_at is not None:
        known.append(axis.line_at)
    if axis.logarithmic:
        known = [value for value in known if value > 0]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if axis.from_zero:
        low = min(0.0, low)
    if high <= low:
        low, high = (low / 2, high * 2) if axis.logarithmic else (low - 0.5, high + 0.5)
    return low, high


def scale(axis: Axis, low: float, high: float, begin: float, end: float) -> Scale:
    """From values, `low` to `high`, to pixels, `begin` to `end`."""

    def of(value: float) -> float:
        return math.log10(max(value, low)) if axis.logarithmic else value

    first, width = of(low), (of(high) - of(low)) or 1.0
    return lambda value: begin + (of(value) - first) / width * (end - begin)


def written(axis: Axis, ends: tuple[float, float], most: int) -> list[tuple[float, str]]:
    """What stands beside an axis with these ends, and where: its labels, or about so many round numbers."""
    if axis.labels:
        return list(zip(axis.at or range(len(axis.labels)), axis.labels, strict=True))
    if axis.ticks:
        return list(zip(axis.ticks, axis.tick_texts or [f"{each:g}" for each in axis.ticks], strict=True))
    if axis.logarithmic:
        powers = range(math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1])) + 1)
        return [(10.0**power, f"{10.0**power:g}") for power in powers]
    return [(each, f"{each:.6g}") for each in ticks(*ends, most)]
