"""The answer of `pyddpdiag hang`, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, TextIO

from rich.text import Text

from pyddpdiag.live.state import Hang, Operation, RankState, State, Status
from pyddpdiag.messages.source import without_source
from pyddpdiag.model.words import count, listed, ranks, size
from pyddpdiag.output import clean
from pyddpdiag.report.screen import Screen, screen_for
from pyddpdiag.report.tables import Cell, Table
from pyddpdiag.report.text import print_finding

SCHEMA_VERSION: Final = 1
MOST_RANKS: Final = 32

_STYLE: Final[dict[Status, str]] = {
    "moving": "bold green",
    "ended": "bold green",
    "found": "bold yellow",
    "cannot_tell": "bold magenta",
}
_STATE: Final[dict[State, tuple[str, str]]] = {
    "moving": ("moves", "green"),
    "waiting": ("waits in Gloo", "yellow"),
    "busy": ("in its own code", "bold yellow"),
    "stopped": ("stopped", "bold red"),
    "dead": ("dead", "bold red"),
    "closed": ("ended", "green"),
    "unseen": ("out of sight", "magenta"),
    "absent": ("no trace", "bold red"),
}


def hang_to_json(found: Hang) -> str:
    """The answer as one JSON object (docs/hang.md). ASCII only; never NaN or Infinity."""
    fields = {"schema_version": SCHEMA_VERSION, **asdict(found), "exit_code": found.exit_code}
    return json.dumps(fields, indent=2, allow_nan=False)


def print_hang(found: Hang, file: TextIO) -> None:
    """Print the answer; the output's width, colours and encoding are respected."""
    screen = screen_for(file)
    dot = screen.sign(" · ", " | ")
    traced = sum(rank.state != "absent" for rank in found.ranks)
    head = [
        clean(found.folder),
        f"{traced} of {count(found.world_size, 'rank')}",
        f"looked at for {found.looked_s:.1f} s",
    ]
    screen.print(Text(dot.join(head), "dim"))
    screen.console.print()
    screen.print(Text(found.line, _STYLE[found.status]), 2)
    for place, finding in enumerate(found.findings):
        print_finding(screen, finding, is_headline=place == 0 and found.status == "found")
    if found.status != "ended":
        _ranks(screen, found)
    for stack in found.stacks:
        screen.console.print()
        if stack.why:
            screen.print(Text(f"No stack of rank {stack.rank}: {stack.why}", "dim"), 2)
            continue
        screen.print(Text(f"Stack of rank {stack.rank} (py-spy)", "bold"), 2)
        screen.print(Text(stack.text), 4)


def _ranks(screen: Screen, found: Hang) -> None:
    shown = _shown(found)
    hosts = len({rank.host for rank in found.ranks if rank.host})
    columns: dict[str, Sequence[Cell]] = {
        "rank": [str(rank.rank) for rank in shown],
        "host": [screen.cut(rank.host or "?", 16) for rank in shown],
        "state": [_state(rank, hosts) for rank in shown],
        "pid": [str(rank.pid or "-") for rank in shown],
        "step": ["-" if rank.last_step is None else str(rank.last_step) for rank in shown],
        "silent for": [_seconds(rank.silent_s) for rank in shown],
        "heartbeat": [_seconds(rank.beat_s) for rank in shown],
        " in": [_what(rank, screen) for rank in shown],
    }
    if all(rank.beat_s is None for rank in shown):
        del columns["heartbeat"]
    screen.fit(columns, ["pid", "host"])
    left = len(found.ranks) - len(shown)
    note = f"{count(left, 'other rank')} not shown; --json shows all." if left else ""
    screen.table(Table("Ranks", columns, 3, note=note))
    at: dict[str, list[int]] = {}
    for rank in found.ranks:
        if rank.line:
            at.setdefault(clean(rank.line), []).append(rank.rank)
    if at:
        where = listed((f"{ranks(who)} at {line}" for line, who in at.items()), MOST_RANKS)
        screen.print(Text(f"Seen since then: {where}."), 2)


def _state(rank: RankState, hosts: int) -> Text:
    words, style = _STATE[rank.state]
    if rank.state == "waiting" and rank.waits_in is not None and rank.waits_in.shared:
        words = "waits in shared memory" + (" or Gloo" if hosts > 1 else "")
    return Text(words, style)


def _shown(found: Hang) -> list[RankState]:
    """The ranks to list: if there are too many, those that are unlike most come first."""
    if len(found.ranks) <= MOST_RANKS:
        return list(found.ranks)
    common: dict[tuple[State, bool], int] = {}
    for rank in found.ranks:
        key = rank.state, rank.missing_from is not None
        common[key] = common.get(key, 0) + 1
    rare = sorted(
        found.ranks, key=lambda rank: (common[rank.state, rank.missing_from is not None], rank.rank)
    )
    return sorted(rare[:MOST_RANKS], key=lambda rank: rank.rank)


def _what(rank: RankState, screen: Screen) -> str:
    parts = []
    if rank.waits_in is not None:
        parts.append(_operation(rank.waits_in))
    if rank.missing_from is not None:
        parts.append("never began " + _operation(rank.missing_from))
    if rank.error is not None:
        parts.append(f"failed: {screen.cut(clean(without_source(rank.error)), 60) or 'no message'}")
    return "; ".join(parts)


def _operation(one: Operation) -> str:
    if one.kind != "bucket":
        text = one.what
    else:
        names = one.parameters
        more = f"+{len(names) - 1} " if len(names) > 1 else ""
        text = f"bucket {one.what[:8]}" + (f" {more}{clean(names[-1], 24)}" if names else "")
        if one.bytes:
            text += f" {size(one.bytes)}"
    if one.step is not None and one.kind == "bucket":
        text += f" step {one.step}"
    return text


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return (
        f"{value:.1f} s"
        if value < 100
        else f"{value / 60:.0f} min"
        if value < 6000
        else f"{value / 3600:.0f} h"
    )
