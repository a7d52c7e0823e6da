"""Machines without a common folder: where the traces of this one are, and how to bring all of them together."""

from __future__ import annotations

import socket
from pathlib import Path

from pyddpdiag.errors import TraceError
from pyddpdiag.messages.shells import Command, this_shell, write
from pyddpdiag.model.words import ranges
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.folder import find_traces
from pyddpdiag.trace.reader import read_header


def how_to_collect(folder: Path) -> str:
    """What to do about ranks that have no trace in the folder of a run; empty: all have one, or nothing is known."""
    try:
        headers = [read_header(path)[0] for path in find_traces(choose_attempt(folder)[0])[0]]
    except TraceError:
        return ""
    here, world_size = sorted({header.rank for header in headers}), max(one.world_size for one in headers)
    if len(here) >= world_size:
        return ""
    line = Command(("pyddpdiag", "collect", str(folder), "DIR...", "--into", f"{folder}-all"))
    return (
        f"{socket.gethostname()}:{folder.absolute()} has the traces of {_of(here)} of {world_size}. Where each machine "
        f"has a folder of its own, copy all of them to one, and bring them together:\n  {write(line, this_shell())}"
    )


def _of(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"
