"""The lines of JSON by which a rank and the runner talk: a *tell* reports, an *ask* waits for a line in reply."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def ask(what: str, **more: Any) -> str:
    """Reports, and waits until the runner lets all ranks go on; returns what it says."""
    say(ask=what, **more)
    reply = sys.stdin.readline()
    if not reply:
        raise SystemExit("the runner is gone")
    return reply.strip()
