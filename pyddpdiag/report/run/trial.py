"""A trial of cures: its answer, the ratios with their intervals, and the lines to paste."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.report import RunReport
from pyddpdiag.model.tried import Tried, TriedCure
from pyddpdiag.model.words import number
from pyddpdiag.report.charts.chart import Axis, Chart, Interval, Mark, Panel, by_word, ratio_ticks
from pyddpdiag.report.page import Notice, Paragraph, Part
from pyddpdiag.report.trial import answer, bits, compared, interval, table, worth_a_paste

_ROW: Final = 30
"""Pixels of a setting."""

_LOOK: Final[dict[str, tuple[str, Mark]]] = {
    "faster": ("good", "circle"),
    "slower": ("bad", "circle"),
    "no sure difference": ("unsure", "cross"),
}


def parts(report: RunReport) -> list[Part]:
    """What there is to show of it; nothing where no trial took place."""
    tried = report.tried
    if tried is None:
        return []
    lines = [f"To start this run with {cure.name}: {cure.line}" for cure in worth_a_paste(tried)]
    found: list[Part] = [Notice("note", answer(tried), lines)]
    known = [cure for cure in tried.cures if cure.ratio is not None]
    if known:
        found.append(_ratios(tried, known))
    else:
        found.append(table(tried, with_lines=True))
    found += [Paragraph(text) for cure in tried.cures if (text := compared(cure))]
    return found


def _ratios(tried: Tried, known: list[TriedCure]) -> Chart:
    rows = []
    for place, cure in enumerate(known):
        ratio = _or(cure.ratio, 1.0)
        low, high = _or(cure.ratio_low, ratio), _or(cure.ratio_high, ratio)
        rows.append((_word(cure), Interval(place, ratio, low, high, _tip(cure))))
    series = by_word(_LOOK, rows)
    low, high = min(one.low for _, one in rows), max(one.high for _, one in rows)
    return Chart(
        "trial",
        "What each cure does to the step",
        "Ratio of its step to that of the run as it is, in pairs of one round; below 1 is faster. "
        "Bars are 95% intervals.",
        [Panel(series, Axis("", labels=[cure.name for cure in known]), height=_ROW * len(known) + 24)],
        Axis("step / step as it is", logarithmic=True, ticks=ratio_ticks(low, high), line_at=1.0),
        table(tried, with_lines=True),
    )


def _word(cure: TriedCure) -> str:
    if cure.ratio_high is not None and cure.ratio_high < 1:
        return "faster"
    return "slower" if cure.ratio_low is not None and cure.ratio_low > 1 else "no sure difference"


def _tip(cure: TriedCure) -> str:
    step = "" if cure.step_ms is None else f"; {number(cure.step_ms)} ms per step"
    left = f"; left: {cure.left}" if cure.left else ""
    return f"{cure.name}: {interval(cure)}{step}; bits: {bits(cure)}{left}"


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
