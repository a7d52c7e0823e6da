"""torchrun on Windows, which fails before it starts a rank unless it meets over a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from pyddpdiag import system
from pyddpdiag.doctor.check import Outcome, Situation, failed, passed
from pyddpdiag.doctor.torch_facts import find
from pyddpdiag.messages import torchrun
from pyddpdiag.messages.shells import this_shell, write

_NAME = "torchrun"


def fails_here() -> bool:
    """Whether this is Windows, with a torch whose torchrun fails there."""
    torch = find() if system.WINDOWS else None
    return torch is not None and torchrun.OLDEST_FAILING <= torch.minor <= torchrun.NEWEST_FAILING


def warning(command: Sequence[str]) -> str:
    """What to say before a command is started that will fail here, with the lines that work; "" if it is another."""
    if not fails_here() or not torchrun.is_torchrun(command):
        return ""
    if torchrun.works_on_windows(command, os.environ):
        return ""
    shown = [f"    {write(line, this_shell())}" for line in torchrun.LINES_ON_WINDOWS]
    return "\n".join([f"This torchrun will fail: {torchrun.WHY}.", f"  hint: {torchrun.FIX}", *shown])


def check(situation: Situation) -> Iterator[Outcome]:
    """On Windows: how torchrun can be used; a failure where variables show that it is about to be."""
    # Whoever has been started by it has got past what fails.
    if not fails_here() or situation.launch.by == "torchrun":
        return
    if torchrun.works_on_windows((), situation.environ):
        yield passed(_NAME, f"{torchrun.UNSHARED.name} is set, and it is to meet over a file")
    elif any(name.startswith("PET_") for name in situation.environ):
        yield failed(
            _NAME,
            f"PET_ variables hold options for it, and it will fail: {torchrun.WHY}.",
            torchrun.FIX,
            *torchrun.LINES_ON_WINDOWS,
        )
    else:
        shown = "; ".join(write(line, situation.shell) for line in torchrun.LINES_ON_WINDOWS)
        yield passed(_NAME, f"fails here unless it meets over a file: {shown}")
