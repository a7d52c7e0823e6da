"""The mean step as a tree: what each rank's milliseconds went to, with what the verdict blames marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Final

import numpy as np

from pyddpdiag.model.cube import NAMES, PARTS, RankParts
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import count, number, percent
from pyddpdiag.report.culprit import Culprit, beside, culprit
from pyddpdiag.report.screen import Screen
from pyddpdiag.report.tables import Cell, Table

_COLUMNS: Final = 4
"""So many ranks have a column each; of more, those that findings name do, and the others share one."""

_LEAST: Final = 0.01
"""Of the step: what takes less of it on every rank has no line of its own, but for the lines that are always there."""


@dataclass(frozen=True)
class _Line:
    label: str
    value: Callable[[RankParts], float | None]
    always: bool = False
    inside: bool = False


_SPANS: Final = (
    _Line("forward", lambda rank: rank.forward_ms, always=True),
    _Line("backward", lambda rank: rank.backward_ms, always=True),
    _Line("optimizer and after", lambda rank: rank.after_ms, always=True),
    _Line("other lines", lambda rank: rank.before_ms),
)
_OWN: Final = (
    _Line("of these, waiting for a core", lambda rank: rank.core_ms, inside=True),
    _Line("of these, asleep", lambda rank: rank.blocked_ms, inside=True),
)
_PLACE: Final = {
    **NAMES,
    "core": _OWN[0].label,
    "blocked": _OWN[1].label,
}


def print_step(screen: Screen, report: RunReport) -> None:
    """Print the tree; nothing where no step is known."""
    if not report.parts:
        return
    names, groups = _columns(report)
    columns = [_mean(group) for group in groups]
    values = {part: [getattr(each, f"{part}_ms") for each in columns] for part in PARTS}
    found = culprit(report, [[each.rank for each in group] for group in groups], values)
    lines = [line for line in _lines(report, columns) if line.always or _shown(line, columns)]
    marked = _marked(found, lines, columns)
    last = max(place for place, line in enumerate(lines) if not line.inside)
    table: dict[str, Sequence[Cell]] = {
        "the mean step": ["step", *(_label(screen, line, place == last) for place, line in enumerate(lines))]
    }
    for name, column in zip(names, columns, strict=True):
        table[name] = [f"{number(column.step_ms)} ms", *(_cell(line.value(column), column) for line in lines)]
    if marked:
        arrow = screen.sign("◀", "<-")
        table[" cause"] = ["", *(f"{arrow} {_said(found)}" if line is marked else "" for line in lines)]
    screen.table(Table("Where a step goes (ms, and % of the step)", table, 1, note=_accumulates(report)))


def _accumulates(report: RunReport) -> str:
    """That findings count longer steps, where gradients are summed over several before they are averaged."""
    judged = report.steps.judged
    averaging = np.count_nonzero(judged & (report.steps.buckets > 0))
    each = round(np.count_nonzero(judged) / averaging) if averaging else 1
    if each < 2:
        return ""
    return f"1 step in {each} averages gradients: costs per step, above, are from one of these to the next."


def _columns(report: RunReport) -> tuple[list[str], list[list[RankParts]]]:
    parts = list(report.parts)
    if len(parts) > _COLUMNS:
        named = [finding.rank for finding in report.verdict.findings if finding.rank is not None]
        alone = list(dict.fromkeys(named))[: _COLUMNS - 1]
        groups = [[each] for each in parts if each.rank in alone]
        others = [each for each in parts if each.rank not in alone]
        names = [f"rank {group[0].rank}" for group in groups]
        return [*names, count(len(others), "other" if names else "rank")], [*groups, others]
    return [f"rank {each.rank}" for each in parts], [[each] for each in parts]


def _mean(group: Sequence[RankParts]) -> RankParts:
    """The mean of some ranks, under the number of the first one."""

    def of(name: str) -> float | None:
        known = [value for each in group if (value := getattr(each, name)) is not None]
        return fmean(known) if known else None

    return RankParts(group[0].rank, **{each.name: of(each.name) for each in fields(RankParts)[1:]})  # type: ignore[arg-type]


def _lines(report: RunReport, columns: Sequence[RankParts]) -> list[_Line]:
    split = all(each.forward_ms is not None for each in columns)
    own = _SPANS if split else (_Line("own lines", lambda rank: rank.own_ms, always=True),)
    return [
        _Line(NAMES["data_wait"], lambda rank: rank.data_wait_ms, always=True),
        *own,
        *_OWN,
        _Line(NAMES["phase"], lambda rank: rank.phase_ms),
        _Line(NAMES["other"], lambda rank: rank.other_ms),
        _Line(waited_for(report), lambda rank: rank.late_ms, always=len(report.parts) > 1),
        _Line(NAMES["communication"], lambda rank: rank.communication_ms, always=True),
    ]


def waited_for(report: RunReport) -> str:
    """For whom the ranks wait, by name where one is blamed for it."""
    late = {finding.rank for finding in report.verdict.findings if finding.kind == "late_rank"}
    return f"waiting for rank {late.pop()}" if len(late) == 1 else NAMES["late"]


def _shown(line: _Line, columns: Sequence[RankParts]) -> bool:
    return any((line.value(each) or 0.0) >= _LEAST * each.step_ms > 0 for each in columns)


def _marked(found: Culprit | None, lines: Sequence[_Line], columns: Sequence[RankParts]) -> _Line | None:
    """The line of what is blamed; of a rank's own computing, the span of which it has most more than the others."""
    if found is None:
        return None
    place = _PLACE.get(found.part, "")
    if found.part == "late":
        place = next(line.label for line in lines if line.label.startswith(("waiting for", "on the")))
    if named := next((line for line in lines if line.label == place), None):
        return named

    def more(line: _Line) -> float:
        values = [line.value(each) or 0.0 for each in columns]
        return values[found.row] - (0.0 if found.everywhere else beside(values, found.row))

    spans = _SPANS[2:] if found.finding.evidence.get("outside_passes") else _SPANS
    own = [line for line in lines if line in spans or line.label == "own lines"]
    return max(own, key=more)


def _said(found: Culprit | None) -> str:
    if found is None:
        return ""
    who = "every rank" if found.everywhere else f"rank {found.finding.rank}"
    return f"{who}, {found.finding.where}" if found.finding.where else who


def _label(screen: Screen, line: _Line, is_last: bool) -> str:
    if line.inside:
        return screen.sign("│   ", "|   ") + line.label
    return (screen.sign("└ ", "- ") if is_last else screen.sign("├ ", "- ")) + line.label


def _cell(value: float | None, column: RankParts) -> str:
    if value is None:
        return "-"
    share = percent(value / column.step_ms) if column.step_ms > 0 else "-"
    return f"{number(value)} {share:>4}"
