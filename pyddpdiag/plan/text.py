"""A plan as the terminal prints it, or as JSON."""

from __future__ import annotations

import json
from typing import Final, TextIO

from rich.text import Text

from pyddpdiag.model.words import count, listed, number, percent
from pyddpdiag.plan.scaling import WORTHWHILE
from pyddpdiag.plan.settings import Limit, Plan, Scaling
from pyddpdiag.plan.units import MOST_RANKS
from pyddpdiag.report.screen import INDENT, screen_for
from pyddpdiag.report.tables import Table

_LIMITS: Final[dict[Limit, str]] = {
    "latency": "the rounds of the ring, whose latency adds up",
    "bandwidth": "the bytes that pass each link",
    "slowest rank": "waiting for the slowest of so many ranks",
}


def print_plan(found: Plan, file: TextIO, *, as_json: bool = False) -> None:
    """Print a plan as a table, or as JSON (docs/plan.md)."""
    if as_json:
        file.write(json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n")
        return
    screen = screen_for(file)
    if found.cannot_tell:
        screen.print(Text(f"Cannot tell: {found.cannot_tell}"))
        return
    screen.table(steps_table(found))
    for sentence in sentences(found):
        screen.print(Text(sentence), INDENT)


def sentences(found: Plan) -> list[str]:
    """What is said below the table: how far the run scales, and what cannot be told."""
    said = [scaling_sentence(found.scaling)] if found.scaling is not None else []
    for reason in dict.fromkeys(row.cannot_tell for row in found.rows if row.cannot_tell):
        settings = listed(row.setting for row in found.rows if row.cannot_tell == reason)
        said.append(f"Cannot tell: {settings}: {reason}.")
    return said


def scaling_sentence(scaling: Scaling) -> str:
    """Where scaling ends, and why."""
    doubled = "twice the ranks, each with the same batch, give"
    if scaling.ends_at is None or scaling.limit is None or scaling.limit_ms is None:
        return f"Scaling does not end: with {MOST_RANKS} ranks, {doubled} at least {WORTHWHILE:g} times the throughput."
    beyond = next(point for point in scaling.points if point.ranks == 2 * scaling.ends_at)
    end = "with one rank" if scaling.ends_at == 1 else f"at {scaling.ends_at} ranks"
    return (
        f"Scaling ends {end}: beyond, {doubled} less than {WORTHWHILE:g} times the throughput. With {beyond.ranks}, "
        f"{number(scaling.limit_ms)} ms of a step of {number(beyond.step_ms)} ms are {_LIMITS[scaling.limit]}."
    )


def steps_table(found: Plan) -> Table:
    """All settings that can be told, with their steps."""
    known = [row for row in found.rows if not row.cannot_tell]
    link = ""
    if found.round_ms is not None:
        rate = "" if found.bandwidth_gbit is None else f" and {number(found.bandwidth_gbit)} Gbit/s"
        link = f" Fitted to this run: {number(found.round_ms)} ms for a round of the ring{rate}."
    if found.wire_pace is not None and found.compute_pace is not None and found.compute_pace < 1:
        link += (
            f" Ranks and Gloo share cores: while both go on, buckets take {number(1 / found.wire_pace)} times as long, "
            f"and computing {number(1 / found.compute_pace)} times."
        )
    missed = percent(abs(found.missed_fraction or 0.0))
    return Table(
        f"Step times planned from {count(found.steps, 'recorded step')}",
        {
            "setting": [row.setting for row in known],
            "buckets": [str(row.buckets) for row in known],
            "step ms": [_shown(row.step_ms) for row in known],
            "from": [_shown(row.low_ms) for row in known],
            "to": [_shown(row.high_ms) for row in known],
            "exposed ms": [_shown(row.exposed_ms) for row in known],
            "efficiency": ["" if row.efficiency is None else percent(row.efficiency) for row in known],
        },
        texts=1,
        dim=[row.kind == "recorded" for row in known],
        note=f"The replay misses the run's own step by {missed}.{link} Efficiency: the step of one of its ranks alone "
        "over this one. A calculation: `pyddpdiag help plan` says how far off it was.",
    )


def scaling_table(scaling: Scaling) -> Table:
    """Throughput by number of ranks."""
    return Table(
        "Throughput by number of ranks",
        {
            "ranks": [str(point.ranks) for point in scaling.points],
            "step ms": [number(point.step_ms) for point in scaling.points],
            "efficiency": [percent(point.throughput / point.ranks) for point in scaling.points],
            "times a rank alone": [number(point.throughput) for point in scaling.points],
        },
        texts=0,
    )


def _shown(value: float | None) -> str:
    return "" if value is None else number(value)
