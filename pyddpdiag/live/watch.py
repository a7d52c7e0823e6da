"""Shows a run while it goes, look by look, and never takes more than its share of a core."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from pyddpdiag.export.openmetrics import Metrics, verdict
from pyddpdiag.live.pulse import Pulse, RankPulse, Watcher
from pyddpdiag.model.findings import EXIT_CODES
from pyddpdiag.model.words import count, milliseconds, number, percent, seconds, sentence
from pyddpdiag.output import clean, say
from pyddpdiag.report.life import grouped, life_bars
from pyddpdiag.report.screen import Screen, screen_for
from pyddpdiag.report.tables import Cell, Table, cell
from pyddpdiag.report.text import STATUS_STYLE
from pyddpdiag.system.result_files import write_whole

SCHEMA_VERSION: Final = 1
SHARE: Final = 0.03
"""Of one core: a look that took longer is followed by a longer pause."""

MOST_RANKS: Final = 24
MOST_BARS: Final = 8
LEAST_LATE_MS: Final = 1.0

Show = Callable[[Pulse], None]
"""Shows a look."""


def watch(
    folder: Path,
    show: Show,
    *,
    interval_s: float,
    once: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Look at a folder every `interval_s` seconds until interrupted, or `once`. Returns the verdict's exit code.

    Takes at most `SHARE` of one core: if looks take longer, they come less often.
    """
    watcher = Watcher(folder)
    while True:
        begin, spent = time.monotonic(), time.process_time()
        pulse = watcher.look()
        show(pulse)
        if once:
            return 2 if pulse.verdict is None else EXIT_CODES[pulse.verdict.status]
        spent = time.process_time() - spent
        pause(max(0.0, max(interval_s, spent / SHARE) - (time.monotonic() - begin)))


@contextmanager
def display_for(file: TextIO, *, as_json: bool) -> Iterator[Show]:
    """A live view on a terminal, which replaces the last look; a line for each look elsewhere, or as JSON."""
    screen = screen_for(file)
    if as_json or not screen.console.is_terminal or screen.console.is_dumb_terminal:
        yield _lines(file, pulse_to_json if as_json else pulse_line)
        return
    # No thread that repaints: nothing changes between looks.
    with Live(console=screen.console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda pulse: live.update(picture(pulse, screen), refresh=True)


def _lines(file: TextIO, line: Callable[[Pulse], str]) -> Show:
    """A line for each look; of a run that is over, one."""
    over = ""

    def show(pulse: Pulse) -> None:
        nonlocal over
        before, over = over, pulse.run_id if pulse.status == "over" else ""
        if not over or over != before:
            say(line(pulse), file)
            # Whoever reads it through a pipe wants it now.
            file.flush()

    return show


def pulse_to_json(pulse: Pulse) -> str:
    """A look as one JSON object in one line (docs/hang.md). ASCII only; never NaN or Infinity."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(pulse)}, allow_nan=False)


def pulse_line(pulse: Pulse) -> str:
    """A look in one line for people."""
    at = time.strftime("%H:%M:%S", time.localtime(pulse.at_s))
    if pulse.status == "waiting":
        return clean(f"{at} waiting: {pulse.line}")
    step = f"step {pulse.step}" if pulse.step is not None else "no step yet"
    parts = [f"the run is over at {step}" if pulse.status == "over" else step, *_figures(pulse)]
    late = max(pulse.ranks, key=lambda rank: rank.late_ms or 0.0, default=None)
    if late is not None and (late.late_ms or 0.0) >= LEAST_LATE_MS:
        parts.append(f"rank {late.rank} late by {milliseconds(late.late_ms or 0)}")
    if pulse.trial:
        parts.append(pulse.trial)
    return clean(f"{at} " + ", ".join(parts) + f". {pulse.line}")


def _figures(pulse: Pulse) -> list[str]:
    """Rate, step time, exposed communication and bandwidth, as far as they are known."""
    found = []
    if pulse.steps_per_s is not None and pulse.status != "over":
        found.append(f"{number(pulse.steps_per_s)} steps/s")
    if pulse.step_ms is not None:
        found.append(f"{milliseconds(pulse.step_ms)} per step")
    if pulse.exposed_ms is not None and pulse.exposed_fraction is not None:
        found.append(f"exposed {milliseconds(pulse.exposed_ms)} ({percent(pulse.exposed_fraction)})")
    if pulse.busbw_gbps is not None:
        found.append(f"{number(pulse.busbw_gbps)} GB/s on the wire")
    return found


def picture(pulse: Pulse, screen: Screen) -> RenderableType:
    """A look as a whole screen."""
    at = time.strftime("%H:%M:%S", time.localtime(pulse.at_s))
    dot = screen.sign(" · ", " | ")
    head = [clean(pulse.folder), at]
    if pulse.status == "waiting":
        return Group(
            Text(screen.text(dot.join(head)), "dim"),
            Text(screen.text(f"Waiting for a run: {clean(pulse.line)}")),
        )
    head += [
        f"run {pulse.run_id[:8]}" + (f", the {_nth(pulse.runs)} here" if pulse.runs > 1 else ""),
        count(pulse.world_size, "rank"),
        "over" if pulse.status == "over" else f"step {'-' if pulse.step is None else pulse.step}",
    ]
    style = "" if pulse.verdict is None else STATUS_STYLE[pulse.verdict.status]
    parts: list[RenderableType] = [
        Text(screen.text(dot.join(head)), "dim"),
        Text(screen.text(dot.join(_figures(pulse)) or "No step is complete yet.")),
        Text(screen.text(clean(pulse.line)), style),
        *([Text(screen.text(sentence(clean(pulse.trial)) + "."), "cyan")] if pulse.trial else []),
        *_grids(pulse, screen),
        *_lives(pulse, screen),
        *(Text(screen.text(clean(change)), "dim") for change in pulse.changes),
    ]
    if len(pulse.ranks) > MOST_RANKS:
        parts.append(Text(f"{count(len(pulse.ranks) - MOST_RANKS, 'other rank')} not shown", "dim"))
    return Group(*parts)


def _nth(number_: int) -> str:
    return {2: "second", 3: "third"}.get(number_, f"{number_}th")


def _shown(pulse: Pulse, most: int) -> tuple[RankPulse, ...]:
    """Of more ranks than that those that are late, or have waited for long."""
    first = sorted(pulse.ranks, key=lambda one: (-(one.late_ms or 0), -(one.silent_ms or 0)))[:most]
    return tuple(sorted(first, key=lambda one: one.rank))


def _lives(pulse: Pulse, screen: Screen) -> list[RenderableType]:
    """Where the time in view went, as a bar for each rank."""
    rows = {str(one.rank): grouped(one.account) for one in _shown(pulse, MOST_BARS) if one.account}
    longest = max((sum(parts.values()) for parts in rows.values()), default=0.0)
    if not longest:
        return []
    return [
        Text(f"Where the last {seconds(longest)} went", "bold"),
        *(Text("  ") + line for line in life_bars(rows, screen.console.width - 2)),
    ]


def _grids(pulse: Pulse, screen: Screen) -> list[Grid]:
    ranks = _shown(pulse, MOST_RANKS)

    columns: dict[str, Sequence[Cell]] = {
        "rank": [str(rank.rank) for rank in ranks],
        "host": [screen.cut(clean(rank.host) or "?", 16) for rank in ranks],
        "step": [cell(rank.last_step) for rank in ranks],
        "ms": [cell(rank.step_ms) for rank in ranks],
        "compute": [cell(rank.compute_ms) for rank in ranks],
        "data": [cell(rank.data_wait_ms) for rank in ranks],
        "exposed": [cell(rank.exposed_ms) for rank in ranks],
        "late": [cell(rank.late_ms) for rank in ranks],
        " in flight": [_doing(rank, screen) for rank in ranks],
    }
    return screen.grids(Table("Ranks", columns, 2))


def _doing(rank: RankPulse, screen: Screen) -> Text:
    if rank.ended_well:
        return Text("ended", "green")
    if rank.process in ("dead", "stopped"):
        return Text(rank.process, "bold red")
    oldest = rank.oldest
    if oldest is None:
        return Text("")
    what = oldest.what[:8] if oldest.kind == "bucket" else clean(oldest.what, 24)
    names = f" {clean(oldest.parameters[-1], 24)}" if oldest.parameters else ""
    more = f", +{rank.in_flight - 1}" if rank.in_flight > 1 else ""
    slow = "yellow" if oldest.open_ms > 1000 else ""
    return Text(screen.text(f"{what}{names} in flight for {milliseconds(oldest.open_ms)}{more}"), slow)


def also_written(show: Show, path: Path) -> Show:
    """Shows looks, and keeps a file of the newest one.

    It stays when the watching ends: `pyddpdiag_look_time_seconds` tells how old it is. A file that cannot be written
    is an error of showing.
    """

    def both(pulse: Pulse) -> None:
        show(pulse)
        write_whole(path, pulse_metrics(pulse), force=True, option="--openmetrics")

    return both


def pulse_metrics(pulse: Pulse) -> str:
    """The figures of one look."""
    metrics = Metrics()
    run = {"run": pulse.folder}
    metrics.add("look_time_seconds", "When the run was looked at, in seconds since 1970.", pulse.at_s, **run)
    metrics.add("running", "1 while the run goes on.", float(pulse.status == "running"), **run)
    if pulse.status == "waiting":
        return metrics.text()
    metrics.add("ranks", "Ranks of the run.", pulse.world_size, **run)
    verdict(metrics, None if pulse.verdict is None else pulse.verdict.status, run)
    metrics.add("newest_step", "The newest step on any rank.", pulse.step, **run)
    metrics.add("steps_per_second", "Steps per second since the look before.", pulse.steps_per_s, **run)
    metrics.add_ms("run_step_seconds", "The median step.", pulse.step_ms, **run)
    metrics.add_ms(
        "run_exposed_seconds", "Communication that no late rank explains.", pulse.exposed_ms, **run
    )
    metrics.add_gbps("bus_bytes_per_second", "Load on a link (busbw).", pulse.busbw_gbps, **run)
    for rank in pulse.ranks:
        who = {**run, "rank": rank.rank, "host": rank.host}
        for name, value in (
            ("step_seconds", rank.step_ms),
            ("compute_seconds", rank.compute_ms),
            ("data_wait_seconds", rank.data_wait_ms),
            ("exposed_seconds", rank.exposed_ms),
            ("late_seconds", rank.late_ms),
        ):
            metrics.add_ms(name, "Median per step.", value, **who)
        metrics.add("in_flight", "Operations begun and not ended.", rank.in_flight, **who)
        metrics.add_ms("silent_seconds", "Time since the newest record.", rank.silent_ms, **who)
    return metrics.text()
