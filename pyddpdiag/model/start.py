"""A rank that has not begun to train: it has no trace yet, and may never get one."""

from __future__ import annotations

from dataclasses import dataclass

from pyddpdiag.model.now import ProcessStatus


@dataclass(frozen=True)
class Start:
    """Where it is, or was when its process ended (`process`).

    `where` is a line of the script; empty: not known. `waits_in` is the call there in which it meets the other ranks;
    empty: it does something of its own. `for_s`: how long it is there. `error`: the exception that ended it, with its
    line; empty: none is known.
    """

    rank: int
    world_size: int
    host: str
    pid: int
    process: ProcessStatus
    where: str = ""
    waits_in: str = ""
    for_s: float = 0.0
    error: str = ""
