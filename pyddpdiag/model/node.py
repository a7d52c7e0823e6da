"""What `pyddpdiag run` notes on each machine while its command runs, and when that has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyddpdiag.output import clean

BEAT_S: Final = 2.0
"""So often the note is renewed."""

NOTE_BYTES: Final = 4096
"""A longer file is no note."""

_NAME: Final = re.compile(r"node_([0-9a-f]{16})\.json")
_LATEST_NS: Final = 2**61
_LATEST_S: Final = 3e10
_RANK: Final = re.compile(r"[0-9]{1,7}")
_LEAST: Final = -(2**32)


@dataclass(frozen=True)
class NodeNote:
    """A sign of life of one `pyddpdiag run`, which outlives the ranks below it.

    Attributes:
        node: its random name, which its ranks note as well (`Launch.node`).
        host: name of its machine.
        clock: identity of that machine's monotonic clock, as in the traces.
        pid: of the command.
        at_ns: when the note was written, on that clock.
        at_s: the same by the machine's wall clock, in seconds since 1970.
        exit_code: of its command; None: that still runs, as far as the note knows.
        signal: the signal that ended the command, or that asked `pyddpdiag run` to; empty: none did.
        codes: by rank, the exit codes of those that failed by themselves, as `pyddpdiag run --nproc` saw them;
            negative: minus the signal that ended it.
    """

    node: str
    host: str
    clock: str
    pid: int
    at_ns: int
    at_s: float
    exit_code: int | None = None
    signal: str = ""
    codes: Mapping[str, int] = field(default_factory=dict)


def note_name(node: str) -> str:
    """The note's file in the run's folder."""
    return f"node_{node}.json"


def node_of(name: str) -> str | None:
    """The node that a file of this name belongs to; None: it is no such note."""
    found = _NAME.fullmatch(name)
    return found[1] if found else None


def parse_note(node: str, content: bytes) -> NodeNote | None:
    """The note that a file holds, of which nothing is trusted; None: it is none."""
    try:
        return _parse(node, json.loads(content))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def _parse(node: str, raw: Any) -> NodeNote | None:
    """Raises what a wrong type or a missing field raises."""
    code, at_ns, at_s, pid = raw.get("exit_code"), raw["at_ns"], raw["at_s"], raw["pid"]
    host, clock, signal, codes = raw["host"], raw["clock"], raw.get("signal", ""), raw.get("codes", {})
    numbers = (at_ns, pid, code or 0, *codes.values())
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in numbers)
    if (
        not whole
        or not isinstance(at_s, (int, float))
        or not all(isinstance(value, str) for value in (host, clock, signal))
        or not 0 < at_ns < _LATEST_NS
        or not 0 < at_s < _LATEST_S
    ):
        return None
    return NodeNote(
        node,
        clean(host, 255),
        clean(clock, 64),
        pid,
        at_ns,
        float(at_s),
        code,
        clean(signal, 16),
        {rank: found for rank, found in codes.items() if _RANK.fullmatch(rank) and _LEAST <= found < -_LEAST},
    )


__all__ = ["BEAT_S", "NOTE_BYTES", "NodeNote", "node_of", "note_name", "parse_note"]
