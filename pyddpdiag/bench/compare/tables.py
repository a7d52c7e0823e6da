"""A comparison as tables of text, for the terminal and for HTML."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.bench.compare.comparison import Comparison, Pair, PartChange, Scaling
from pyddpdiag.bench.compare.matching import short_cases
from pyddpdiag.bench.intervals import TOO_FEW, WIDE
from pyddpdiag.model.words import number
from pyddpdiag.report.tables import Table

_DELTAS = ("compute_s", "exposed_s", "queue_s", "wire_s")


def tables(comparison: Comparison) -> list[Table]:
    """All tables of a comparison that have rows."""
    found = [_series(comparison)]
    if comparison.changes:
        found.append(changes_table(comparison.changes))
    if comparison.scaling:
        found.append(scaling_table(comparison))
    # The parts of a step and of a whole training differ in size by far: never in one column.
    steps = [pair for pair in comparison.pairs if pair.kind != "scaling"]
    trainings = [pair for pair in comparison.pairs if pair.kind == "scaling"]
    found += [pairs_table(pairs) for pairs in (steps, trainings) if pairs]
    if comparison.curves:
        found.append(curves_table(comparison))
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
    if not any(one.entries for one in comparison.series):
        columns["run"], columns["about"] = columns.pop("result"), columns.pop("made on")
        del columns["cases"]
    return Table("What is compared", columns, 2)


def scaling_table(comparison: Comparison) -> Table:
    """Durations by number of ranks."""
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


def pairs_table(pairs: Sequence[Pair]) -> Table:
    """Ratios and differences of pairs: of whole trainings, or of steps and all-reduces."""
    scale, unit = (1.0, "s of the whole training") if pairs[0].kind == "scaling" else (1e3, "ms of a step")
    common, cases = short_cases(pairs)
    whom, of = _whom(pairs)
    columns: dict[str, list[str]] = {
        "case": cases,
        **of,
        "verdict": [_judged(pair) for pair in pairs],
        "ratio": [f"{pair.ratio.median:.3g}" for pair in pairs],
        "interval": [_interval(pair) for pair in pairs],
    }
    known = [part for part in _DELTAS if any(part in pair.parts for pair in pairs)]
    for part in known:
        columns["d " + part.removesuffix("_s")] = [
            f"{scale * pair.parts[part]:+.3g}" if part in pair.parts else "-" for pair in pairs
        ]
    if any(pair.cause for pair in pairs):
        columns[" mostly"] = [pair.cause for pair in pairs]
    title = f"{whom}: ratio of times with its 95% interval"
    if known:
        title += f"; differences (d) in {unit}"
    return Table(
        title, columns, 2 + len(of), [pair.word in ("no difference", "cannot tell") for pair in pairs], common
    )


def changes_table(changes: Sequence[PartChange]) -> Table:
    """What the parts of a step take in two runs."""
    whom, of = _whom(changes)
    columns: dict[str, list[str]] = {
        "part": [change.part for change in changes],
        **of,
        "verdict": [_judged(change) for change in changes],
        "before": [number(change.base_ms) for change in changes],
        "after": [number(change.other_ms) for change in changes],
        "change": [f"{change.difference_ms.median:+.3g}" for change in changes],
        "interval": [
            "-"
            if change.why == TOO_FEW
            else f"{change.difference_ms.low:+.3g}..{change.difference_ms.high:+.3g}"
            for change in changes
        ],
    }
    title = f"{whom}: parts of a step and buckets, medians in ms, change with its 95% interval"
    return Table(
        title, columns, 2 + len(of), [change.word in ("no difference", "cannot tell") for change in changes]
    )


def _judged(one: Pair | PartChange) -> str:
    # A wide interval stands beside it.
    return f"{one.word}: {one.why}" if one.why not in ("", WIDE) else one.word


def _whom(ones: Sequence[Pair] | Sequence[PartChange]) -> tuple[str, dict[str, list[str]]]:
    """Who is compared with whom: in the title, and where it differs from row to row in a column."""
    others = [one.other for one in ones]
    if len(set(others)) > 1:
        return f"Against {ones[0].base}", {"of": others}
    return f"{others[0]} against {ones[0].base}", {}


def _interval(pair: Pair) -> str:
    if pair.why == TOO_FEW:
        return "-"
    return f"{pair.ratio.low:.3g}..{pair.ratio.high:.3g}"


def curves_table(comparison: Comparison) -> Table:
    """First and last losses."""
    curves = comparison.curves
    columns = {
        "training": [curve.label for curve in curves],
        "epochs": [str(len(curve.loss)) for curve in curves],
        "time": [duration(curve.elapsed_s[-1]) for curve in curves],
        "first loss": [f"{curve.loss[0]:.4g}" for curve in curves],
        "last loss": [f"{curve.loss[-1]:.4g}" for curve in curves],
        "last accuracy": [_accuracy(curve.accuracy[-1]) for curve in curves],
    }
    return Table("Loss over time", columns, 1)


def _accuracy(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}%"
