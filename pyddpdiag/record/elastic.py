"""Where a rank records: an elastic launcher (torchrun) runs the same script once more, and a folder may hold a run."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import suppress
from pathlib import Path

from pyddpdiag.model.attempts import numbered, numbers
from pyddpdiag.start import environment
from pyddpdiag.system import processes

# With this id, the default, two launches cannot be distinguished.
_NO_ID = "none"


def restarts() -> int:
    """How often the launcher has restarted this process's ranks; 0 also where no such launcher started them."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT")
    return int(count) if count.isascii() and count.isdigit() else 0


def attempt_in(named: Path) -> int:
    """The number of this attempt of a run in the folder `named`: 0, or a later one after a restart.

    So a restart finds no trace in its way, and the evidence of what failed before it stays. A restart is
    recognised by torchrun's own count, or, where only the number of ranks has changed and the count has not,
    by traces of the same launch.
    """
    count = restarts()
    launch = environment.get("TORCHELASTIC_RUN_ID", _NO_ID)
    if count == 0 and (launch == _NO_ID or not _holds_this_launch(named)):
        return 0
    taken: list[int] = []
    with suppress(OSError):  # there is none yet, or whoever makes it says what is wrong with it
        # Where ranks of this very attempt have no traces yet, they only note where they are.
        taken = numbers(entry.name for entry in named.iterdir() if any(entry.glob("rank_*.ddptrace")))
    return max([count, *(number + 1 for number in taken), 1])


def place_beside(named: Path) -> tuple[int, int]:
    """Which folder of the name to record into (`model.attempts.numbered`), and the attempt in it.

    The first that holds no traces; after a restart the one in which this launch has recorded before.
    """
    if named.name in ("", ".."):  # has no name to add a number to
        return 1, attempt_in(named)
    for number in itertools.count(1):
        folder = numbered(named, number)
        if not any(folder.glob("rank_*.ddptrace")):
            break
        if _holds_this_launch(folder):
            return number, attempt_in(folder)
    return (1, attempt_in(named)) if restarts() else (number, 0)


def _holds_this_launch(folder: Path) -> bool:
    """Whether a rank of this launch has recorded there, before a restart.

    A launch without an id of its own is known, once it restarts its ranks, by the launcher: this process's parent,
    which is older than all of its ranks.
    """
    launch = environment.get("TORCHELASTIC_RUN_ID", _NO_ID)
    launcher = processes.find(os.getppid()) if launch == _NO_ID and restarts() else None
    since = launcher.started_s if launcher is not None else None
    for sidecar in folder.glob("rank_*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            known = json.loads(sidecar.read_text(encoding="utf-8"))
            if launch != _NO_ID:
                if known["environment"].get("TORCHELASTIC_RUN_ID") == launch:
                    return True
            elif since is not None and known["process_started_s"] >= since:
                return True
    return False
