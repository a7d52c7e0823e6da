"""A sweep's results as tables for people. Needs neither torch nor the native module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TextIO

from rich.text import Text

from pyddpdiag.bench.intervals import estimate
from pyddpdiag.bench.results import Entry
from pyddpdiag.model.words import listed, number, size
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.tables import Cell, Table

PARTS = (
    ("compute", "compute_s"),
    ("exposed", "exposed_s"),
    ("queue", "queue_s"),
    ("on the wire", "wire_s"),
)


def print_entries(entries: Sequence[Entry], file: TextIO, left_out: Mapping[str, str] | None = None) -> None:
    """Prints one table per kind; medians with their 95% intervals."""
    screen = screen_for(file)
    steps = [entry for entry in entries if entry.kind == "step"]
    if steps:
        title = "Steps (median ms per step, 95% interval; where the time goes)"
        screen.table(Table(title, _columns(steps, _STEPS, "step", _SPLIT), 3))
    reduces = [entry for entry in entries if entry.kind == "allreduce"]
    if reduces:
        screen.table(
            Table(
                "All-reduces (median ms, 95% interval; GB/s)", _columns(reduces, _REDUCES, "time", _RATES), 2
            )
        )
    if left_out:
        reasons = sorted(set(left_out.values()))
        screen.console.print()
        for reason in reasons:
            names = [name for name, why in left_out.items() if why == reason]
            screen.print(Text(f"Not measured ({reason}): {listed(names, 4)}."), 2)


def interval_ms(round_s: Sequence[float]) -> tuple[str, str]:
    """Median and interval in milliseconds, as two cells."""
    found = estimate([1e3 * value for value in round_s])
    return number(found.median), f"{number(found.low)}..{number(found.high)}"


def _columns(
    entries: Sequence[Entry], before: Mapping[str, _Read], time: str, after: Mapping[str, _Read]
) -> dict[str, list[Cell]]:
    """Times with their intervals, between columns that are read from what else is known of the entries."""

    def read(columns: Mapping[str, _Read]) -> dict[str, list[Cell]]:
        return {name: [str(of(entry.extra_info)) for entry in entries] for name, of in columns.items()}

    times = [interval_ms(entry.round_s) for entry in entries]
    return {
        **read(before),
        time: [median for median, _ in times],
        "interval": [interval for _, interval in times],
        "rounds": [str(len(entry.round_s)) for entry in entries],
        **read(after),
    }


def _cap(info: Mapping[str, Any]) -> str:
    cap, first = info["bucket_cap_mb"], info.get("first_bucket_mb", info["bucket_cap_mb"])
    return f"{cap:g}" if cap == first else f"{cap:g} (first {first:g})"


def _part(key: str, info: Mapping[str, Any]) -> str:
    return _known((info.get("split") or {}).get(key), 1e3)


def _known(value: float | None, times: float = 1.0) -> str:
    return "-" if value is None else number(times * value)


_Read = Callable[[Mapping[str, Any]], object]
_WHERE: Final[Mapping[str, _Read]] = {
    "interface": lambda info: info.get("interface", ""),
    "ranks": lambda info: info["world_size"],
}
_STEPS: Final[Mapping[str, _Read]] = {
    "model": lambda info: info["model"],
    "hook": lambda info: info["hook"],
    **_WHERE,
    "cap MiB": _cap,
}
_SPLIT: Final[Mapping[str, _Read]] = {name: partial(_part, key) for name, key in PARTS}
_REDUCES: Final[Mapping[str, _Read]] = {
    "size": lambda info: size(info["bytes"]),
    **_WHERE,
    "in flight": lambda info: info.get("chunks", 1),
}
_RATES: Final[Mapping[str, _Read]] = {
    "algbw": lambda info: _known(info.get("algbw_gbps")),
    "busbw": lambda info: _known(info.get("busbw_gbps")),
}
