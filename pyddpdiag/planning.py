"""From a trace folder to a printed plan."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TextIO

from rich.text import Text

from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.words import count, listed, number, percent
from pyddpdiag.plan.plan import plan
from pyddpdiag.plan.settings import Link, Plan
from pyddpdiag.plan.units import caps_of, latency_ms_of, ms_per_byte_of, ranks_of
from pyddpdiag.report.screen import INDENT, screen_for
from pyddpdiag.report.table import Table
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.run import open_run


def plan_folder(
    folder: str | PathLike[str],
    *,
    ranks: str = "",
    bandwidth: str = "",
    latency: str = "",
    bucket_cap_mb: str = "",
) -> Plan:
    """The plan for a run; the options are as they are typed, empty: as recorded.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: an option is not what it should be.
    """
    link = Link(ms_per_byte_of(bandwidth) if bandwidth else None, latency_ms_of(latency) if latency else None)
    counts = ranks_of(ranks) if ranks else ()
    caps = caps_of(bucket_cap_mb) if bucket_cap_mb else ()
    chosen, _ = choose_attempt(Path(folder))
    return plan(RunView(open_run(chosen)), str(chosen), counts, caps, link)


def print_plan(found: Plan, file: TextIO, *, as_json: bool = False) -> None:
    """Print a plan as a table, or as JSON (docs/plan.md)."""
    if as_json:
        file.write(json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n")
        return
    screen = screen_for(file)
    if found.cannot_tell:
        screen.print(Text(f"Cannot tell: {found.cannot_tell}"))
        return
    screen.table(_table(found))
    for reason in dict.fromkeys(row.cannot_tell for row in found.rows if row.cannot_tell):
        settings = listed(row.setting for row in found.rows if row.cannot_tell == reason)
        screen.print(Text(f"Cannot tell: {settings}: {reason}."), INDENT)


def _table(found: Plan) -> Table:
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
        },
        texts=1,
        dim=[row.kind == "recorded" for row in known],
        note=f"The replay misses the run's own step by {missed}.{link} A calculation: docs/plan.md says how far off "
        "it was.",
    )


def _shown(value: float | None) -> str:
    return "" if value is None else number(value)
