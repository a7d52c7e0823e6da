"""A sweep's results as tables for people. Needs neither torch nor the native module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.text import Text

from pyddpdiag.bench.intervals import estimate
from pyddpdiag.bench.results import Entry
from pyddpdiag.model.words import listed, number, size
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.table import Cell, Table

PARTS = (("compute", "compute_s"), ("exposed", "exposed_s"), ("queue", "queue_s"), ("wire", "wire_s"))


def print_entries(entries: Sequence[Entry], file: TextIO, left_out: Mapping[str, str] | None = None) -> None:
    """Prints one table per kind; medians with their 95% intervals."""
    screen = screen_for(file)
    steps = [entry for entry in entries if entry.kind == "step"]
    if steps:
        title = "Steps (median ms per step, 95% interval; where the time goes)"
        screen.table(Table(title, _steps(steps), 3))
    reduces = [entry for entry in entries if entry.kind == "allreduce"]
    if reduces:
        screen.table(Table("All-reduces (median ms, 95% interval; GB/s)", _reduces(reduces), 2))
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


def _steps(entries: Sequence[Entry]) -> dict[str, list[Cell]]:
    rows: dict[str, list[Cell]] = {
        name: [] for name in ("model", "hook", "interface", "ranks", "cap MiB", "step", "interval", "rounds")
    }
    rows.update({name: [] for name, _ in PARTS})
    for entry in entries:
        info: Mapping[str, Any] = entry.extra_info
        median, interval = interval_ms(entry.round_s)
        for name, value in zip(
            rows,
            (
                info["model"],
                info["hook"],
                str(info.get("interface", "")),
                str(info["world_size"]),
                _cap(info),
                median,
                interval,
                str(len(entry.round_s)),
            ),
            strict=False,
        ):
            rows[name].append(value)
        for name, key in PARTS:
            value = (info.get("split") or {}).get(key)
            rows[name].append("-" if value is None else number(1e3 * value))
    return rows


def _cap(info: Mapping[str, Any]) -> str:
    cap, first = info["bucket_cap_mb"], info.get("first_bucket_mb", info["bucket_cap_mb"])
    return f"{cap:g}" if cap == first else f"{cap:g} (first {first:g})"


def _reduces(entries: Sequence[Entry]) -> dict[str, list[Cell]]:
    rows: dict[str, list[Cell]] = {
        name: []
        for name in (
            "size",
            "interface",
            "ranks",
            "in flight",
            "time",
            "interval",
            "rounds",
            "algbw",
            "busbw",
        )
    }
    for entry in entries:
        info = entry.extra_info
        median, interval = interval_ms(entry.round_s)
        cells = (
            size(info["bytes"]),
            str(info.get("interface", "")),
            str(info["world_size"]),
            str(info.get("chunks", 1)),
            median,
            interval,
            str(len(entry.round_s)),
            _rate(info.get("algbw_gbps")),
            _rate(info.get("busbw_gbps")),
        )
        for name, value in zip(rows, cells, strict=True):
            rows[name].append(value)
    return rows


def _rate(value: float | None) -> str:
    return "-" if value is None else number(value)
