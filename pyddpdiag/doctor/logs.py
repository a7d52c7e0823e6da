"""`pyddpdiag doctor --log`: reads logs, and looks at this machine where they point at it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyddpdiag.errors import UsageError
from pyddpdiag.messages import logs
from pyddpdiag.messages.logs import LogVerdict
from pyddpdiag.messages.shells import Shell
from pyddpdiag.ranks.tcp import holder

STANDARD_INPUT: Final = "-"
_MOST = 64 * 1024 * 1024


def read(names: Sequence[str], shell: Shell) -> LogVerdict:
    """What the logs of these names say; "-" is standard input.

    Raises:
        UsageError: a file cannot be read.
    """
    return logs.read({name: _text(name) for name in dict.fromkeys(names)}, lines_for=shell)


def _text(name: str) -> str:
    if name == STANDARD_INPUT:
        return sys.stdin.read(_MOST)
    try:
        with Path(name).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MOST))
            content = file.read()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the log {name} cannot be read: {getattr(error, 'strerror', None) or error}.",
            hint="give files, or - for standard input.",
        ) from error
    # PowerShell's redirection writes UTF-16.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return content.decode(encoding, "replace")


def notes(verdict: LogVerdict) -> list[str]:
    """What this machine adds to the logs: who holds the port that was taken."""
    found = verdict.explanation
    if found.kind != "port_in_use" or not found.facts.get("port", "").isdigit():
        return []
    port = int(found.facts["port"])
    who = holder(port)
    return [
        f"Port {port} of this machine is now held by {who}."
        if who
        else f"Port {port} of this machine is free now."
    ]


def exit_code(verdict: LogVerdict) -> int:
    """0: no error is in them. 1: explained. 2: an error that is not known."""
    if verdict.explanation.kind == logs.NO_ERROR:
        return 0
    return 1 if verdict.explanation.known else 2
