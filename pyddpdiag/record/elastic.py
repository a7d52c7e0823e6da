"""Where a restarted rank records: an elastic launcher (torchrun) runs the same script once more."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from pyddpdiag.model.attempts import numbers

# With this id, the default, two launches cannot be distinguished.
_NO_ID = "none"


def restarts() -> int:
    """How often the launcher has restarted this process's ranks; 0 also where no such launcher started them."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isascii() and count.isdigit() else 0


def attempt_in(named: Path) -> int:
    """The number of this attempt of a run in the folder `named`: 0, or a later one after a restart.

    So a restart finds no trace in its way, and the evidence of what failed before it stays. A restart is
    recognised by torchrun's own count, or, where only the number of ranks has changed and the count has not,
    by traces of the same launch.
    """
    count = restarts()
    launch = os.environ.get("TORCHELASTIC_RUN_ID", _NO_ID)
    if count == 0 and (launch == _NO_ID or not _holds_traces_of(named, launch)):
        return 0
    taken: list[int] = []
    with suppress(OSError):  # there is none yet, or whoever makes it says what is wrong with it
        taken = numbers(entry.name for entry in named.iterdir())
    return max([count, *(number + 1 for number in taken), 1])


def _holds_traces_of(folder: Path, launch: str) -> bool:
    for sidecar in folder.glob("rank_*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            if (
                json.loads(sidecar.read_text(encoding="utf-8"))["environment"].get("TORCHELASTIC_RUN_ID")
                == launch
            ):
                return True
    return False
