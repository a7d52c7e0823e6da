"""A comparison as tables of text: the same for the terminal and for HTML."""

from __future__ import annotations

from dataclasses import dataclass

from pyddpdiag.bench.compare.comparison import Comparison, Pair, Scaling
from pyddpdiag.model.words import number

_DELTAS = ("compute_s", "exposed_s", "queue_s", "wire_s")


@dataclass(frozen=True)
class Table:
    """Columns by name, the first `texts` of them text; `dim` tells which rows are not the user's own."""

    title: str
    columns: dict[str, list[str]]
    texts: int
    dim: list[bool]
    note: str = ""


def tables(comparison: Comparison) -> list[Table]:
    """All tables of a comparison that have rows."""
    found = [_series(comparison)]
    if comparison.scaling:
        found.append(_scaling(comparison))
    if comparison.pairs:
        found.append(_pairs(comparison))
    if comparison.curves:
        found.append(_curves(comparison))
    return found


def duration(seconds: float) -> str:
    """56m 58s, 12.5 s or 3.4 ms."""
    if seconds >= 60:
        whole = round(seconds)
        return f"{whole // 60}m {whole % 60}s"
    return f"{number(seconds)} s" if seconds >= 1 else f"{number(1e3 * seconds)} ms"


def _series(comparison: Comparison) -> Table:
    columns = {
        "result": [one.label for one in comparison.series],
        "made on": [one.facts() for one in comparison.series],
        "cases": [str(len(one.entries)) for one in comparison.series],
    }
    return Table("What is compared", columns, 2, [False] * len(comparison.series))


def _scaling(comparison: Comparison) -> Table:
    rows = comparison.scaling
    worlds = sorted({n for row in rows for n in row.duration_s})
    columns: dict[str, list[str]] = {"result": [r.label for r in rows], "case": [r.what for r in rows]}
    for n in worlds:
        columns["1 rank" if n == 1 else f"{n} ranks"] = [
            duration(r.duration_s[n]) if n in r.duration_s else "-" for r in rows
        ]
    for n in worlds:
        if n > 1:
            columns[f"speed-up {n}"] = [_gain(r, n) for r in rows]
    note = f"Figures of the article are published ones, not measured here. Source: {comparison.source}."
    return Table(
        "Duration by number of ranks, speed-up (efficiency)",
        columns,
        2,
        [row.reference for row in rows],
        note if any(row.reference for row in rows) else "",
    )


def _gain(row: Scaling, n: int) -> str:
    if n not in row.speedup:
        return "-"
    return f"{row.speedup[n]:.2f} ({100 * row.efficiency[n]:.0f}%)"


def _pairs(comparison: Comparison) -> Table:
    pairs = comparison.pairs
    columns: dict[str, list[str]] = {
        "case": [pair.case for pair in pairs],
        "of": [pair.other for pair in pairs],
        "verdict": [f"{pair.word}: {pair.why}" if pair.why else pair.word for pair in pairs],
        "ratio": [f"{pair.ratio.median:.3g}" for pair in pairs],
        "interval": [_interval(pair) for pair in pairs],
    }
    known = [part for part in _DELTAS if any(part in pair.parts for pair in pairs)]
    for part in known:
        columns["d " + part.removesuffix("_s")] = [
            f"{1e3 * pair.parts[part]:+.3g}" if part in pair.parts else "-" for pair in pairs
        ]
    if any(pair.cause for pair in pairs):
        columns[" mostly"] = [pair.cause for pair in pairs]
    title = f"Against {pairs[0].base}: ratio of times with its 95% interval; differences (d) in ms"
    return Table(title, columns, 3, [pair.word in ("no difference", "cannot tell") for pair in pairs])


def _interval(pair: Pair) -> str:
    if pair.why == "too few rounds":
        return "-"
    return f"{pair.ratio.low:.3g}..{pair.ratio.high:.3g}"


def _curves(comparison: Comparison) -> Table:
    curves = comparison.curves
    columns = {
        "training": [curve.label for curve in curves],
        "epochs": [str(len(curve.loss)) for curve in curves],
        "time": [duration(curve.elapsed_s[-1]) for curve in curves],
        "first loss": [f"{curve.loss[0]:.4g}" for curve in curves],
        "last loss": [f"{curve.loss[-1]:.4g}" for curve in curves],
        "last accuracy": [_accuracy(curve.accuracy[-1]) for curve in curves],
    }
    return Table("Loss over time", columns, 1, [False] * len(curves))


def _accuracy(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}%"
