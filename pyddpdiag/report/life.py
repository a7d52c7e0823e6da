"""The account of the ranks' lives in words and bars, the same for the screen and the page; and their phases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from rich.text import Text

from pyddpdiag.model.account import PARTS, RankAccount
from pyddpdiag.model.cube import NAMES as STEP_NAMES
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import PhaseStats
from pyddpdiag.model.words import count, number, ranks
from pyddpdiag.output import clean
from pyddpdiag.report.charts.chart import colour, ink_on
from pyddpdiag.report.tables import Table

SHOWN_PHASES: Final = 8
LEAST: Final = 0.005
"""Of the longest life: a part that takes less on every rank has no column of its own."""

LIFE: Final = {
    "imports_s": ("imports", "imports", "start-up"),
    "rendezvous_s": ("rendezvous", "queue", "start-up"),
    "construction_s": ("making DDP", "optimizer", "start-up"),
    "set_up_s": ("set-up", "set_up", "start-up"),
    "first_steps_s": ("first step", "forward", "first step"),
    "compute_s": (STEP_NAMES["compute"], "compute", "compute"),
    "blocked_s": (STEP_NAMES["blocked"], "blocked", "asleep"),
    "core_wait_s": (STEP_NAMES["core"], "core", "core"),
    "data_wait_s": (STEP_NAMES["data_wait"], "data", "data"),
    "communication_s": (STEP_NAMES["communication"], "wire", "wire"),
    "rank_wait_s": (STEP_NAMES["late"], "late", "ranks"),
    "collectives_s": (STEP_NAMES["other"], "other", "collectives"),
    "phases_s": (STEP_NAMES["phase"], "phase", "between"),
    "collectives_between_s": ("collectives between", "calls", "waits between"),
    "between_steps_s": ("between steps", "between", "between"),
    "between_epochs_s": ("between epochs", "bad", "between"),
    "tail_s": ("after the steps", "tail", "tail"),
    "unknown_s": ("not known", "rest", "not known"),
}
"""Of each part its name, its colour in pictures, and its group, of which there are so few that a screen shows them."""


def shown_parts(accounts: Sequence[RankAccount]) -> list[str]:
    """The parts that take time on some rank, in the order of a life."""
    longest = max((each.wall_s for each in accounts), default=0.0)
    return [part for part in PARTS if any(each.part(part) >= LEAST * longest > 0 for each in accounts)]


def account_rows(accounts: Sequence[RankAccount], chosen: Collection[int]) -> dict[str, RankAccount]:
    """The accounts of the chosen ranks by rank, and one of all others: their mean, of which the parts add up, too."""
    rows = {str(each.rank): each for each in accounts if each.rank in chosen}
    others = [each for each in accounts if each.rank not in chosen]
    if others:
        parts = {part: fmean(each.part(part) for each in others) for part in PARTS}
        wall_s = fmean(each.wall_s for each in others)
        rows[count(len(others), "other")] = RankAccount(-1, wall_s, **parts, phases={})
    return rows


def account_table(rows: Mapping[str, RankAccount]) -> Table:
    """Seconds of each part, for the rows of `account_rows`."""
    shown = list(rows.values())
    return Table(
        "Where each rank's life went (s)",
        {
            "rank": list(rows),
            "all": [number(each.wall_s) for each in shown],
            **{LIFE[part][0]: [number(each.part(part)) for each in shown] for part in shown_parts(shown)},
        },
        1,
        note=_note(rows),
    )


def _note(rows: Mapping[str, RankAccount]) -> str:
    mixed = any(each.rank < 0 for each in rows.values())
    return "The others' row is their mean." if mixed else ""


def grouped(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts of an account, in seconds, by their groups, in the order of a life."""
    found: dict[str, float] = {}
    for part, (*_, group) in LIFE.items():
        found[group] = found.get(group, 0.0) + parts.get(part, 0.0)
    return found


def grouped_account(account: RankAccount) -> dict[str, float]:
    """All of a rank's life in these groups."""
    return grouped({part: account.part(part) for part in PARTS})


def short_table(rows: Mapping[str, RankAccount]) -> Table:
    """The same in columns that fit on a screen."""
    full, shown = account_table(rows), list(rows.values())
    columns = {"rank": full.columns["rank"], "all": full.columns["all"]}
    longest = max((each.wall_s for each in shown), default=0.0)
    bars = [grouped_account(each) for each in shown]
    for name in grouped({}):
        values = [each[name] for each in bars]
        if max(values, default=0.0) >= LEAST * longest > 0:
            columns[name] = [number(value) for value in values]
    more = f"{full.note} --all shows every rank." if full.note else ""
    return Table(full.title, columns, 1, note=more)


def phases_line(report: RunReport) -> str:
    """One line about the named parts of the program; the ranks' medians, and the total of the slowest."""
    by_name: dict[str, list[PhaseStats]] = {}
    for phase in report.phases:
        by_name.setdefault(phase.name, []).append(phase)
    texts = []
    for name, each in list(by_name.items())[:SHOWN_PHASES]:
        worst = max(each, key=lambda phase: phase.total_ms)
        who = "all ranks" if len(each) == len(report.ranks) else ranks([phase.rank for phase in each])
        took = "not ended" if worst.median_ms is None else f"{worst.count} x {number(worst.median_ms)} ms"
        texts.append(f"{clean(name)} {took} on {who}")
    return "Phases: " + "; ".join(texts)


def stacked_bar(parts: Iterable[tuple[float, str, str]], longest: float, width: int) -> Text:
    """A bar of parts, each with its value, its character and its style.

    `longest`: the sum of values that takes all of the width; an empty bar where it is 0. `width`: in characters.
    """
    drawn, end, found = 0, 0.0, Text()
    for value, character, style in parts:
        # Rounding the running end keeps the whole bar to scale.
        end += value
        cells = round(width * end / longest) - drawn if longest > 0.0 else 0
        drawn += cells
        found.append(character * cells, style)
    return found


MOST: Final = 96

SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "start-up": ("s", "imports"),
    "first step": ("f", "forward"),
    "compute": ("c", "compute"),
    "asleep": ("z", "blocked"),
    "core": ("q", "core"),
    "data": ("d", "data"),
    "wire": ("w", "wire"),
    "ranks": ("r", "late"),
    "collectives": ("o", "other"),
    "between": ("b", "between"),
    "waits between": ("h", "calls"),
    "tail": ("t", "tail"),
    "not known": ("?", "rest"),
}
"""By the columns of `short_table`: a letter, for who sees no colours, and the colour that pictures have for it."""


def life_bars(rows: Mapping[str, Mapping[str, float]], width: int) -> list[Text]:
    """A line with the bar of each row, the longest of `MOST` characters, and one that says what the letters stand
    for.

    `rows`: by their labels, seconds by the names of `SIGNS`, in their order. `width`: characters that a line may
    take.
    """
    label = max(len(name) for name in rows)
    longest = max(sum(parts.values()) for parts in rows.values())
    bars = [
        stacked_bar(
            ((seconds, SIGNS[name][0], _style(name)) for name, seconds in parts.items()),
            longest,
            min(MOST, width - label - 2),
        )
        for parts in rows.values()
    ]
    return [*(Text(name.ljust(label + 2)) + bar for name, bar in zip(rows, bars, strict=True)), _legend(bars)]


def _legend(bars: Iterable[Text]) -> Text:
    drawn = {letter for each in bars for letter in each.plain}
    found = Text("Bars:")
    for name, (letter, _) in SIGNS.items():
        if letter in drawn:
            found.append(", " if len(found) > len("Bars:") else " ")
            found.append(letter, _style(name))
            found.append(f" {name}")
    return found


def _style(name: str) -> str:
    background = colour(SIGNS[name][1])
    return f"{ink_on(background)} on {background}"
