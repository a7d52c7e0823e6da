"""What `pyddpdiag run` notes on each machine while its command runs, and when that has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pyddpdiag.model.fields import Code, Form, Limit, exit_code, maybe_from_json
from pyddpdiag.model.untrusted import LATEST_NS

BEAT_S: Final = 2.0
"""So often the note is renewed."""

NOTE_BYTES: Final = 4096
"""A longer file is no note."""

_NAME: Final = re.compile(r"node_([0-9a-f]{16})\.json")
_RANK: Final = re.compile(r"[0-9]{1,7}")


def _codes(raw: Any) -> dict[str, int]:
    found = {rank: exit_code(code) for rank, code in raw.items()}
    return {rank: code for rank, code in found.items() if _RANK.fullmatch(rank) and abs(code) <= 2**32}


_Codes = Annotated[Mapping[str, int], Form(dict, _codes)]


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
    host: Annotated[str, Limit(255)]
    clock: Annotated[str, Limit(64)]
    pid: int
    at_ns: Annotated[int, Limit(LATEST_NS)]
    at_s: Annotated[float, Limit(3e10)]
    exit_code: Code | None = None
    signal: Annotated[str, Limit(16)] = ""
    codes: _Codes = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Whether it says when it was written."""
        return self.at_ns > 0 and self.at_s > 0


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
        return maybe_from_json(NodeNote, json.loads(content), node=node)
    except (ValueError, RecursionError):
        return None
