"""Whether the process of another rank still runs, as far as this one can know."""

from __future__ import annotations

import os
from typing import TypedDict

from pyddpdiag.system import ONE_NUMBERING_OF_PROCESSES
from pyddpdiag.system.clock import clock_identity
from pyddpdiag.system.processes import find, namespace


class Identity(TypedDict):
    """A process among those that are numbered with it.

    Attributes:
        machine: this start of the machine, and the container there; empty: not known.
        process: its number.
    """

    machine: str
    process: int


def ours() -> Identity:
    """This process."""
    return {"machine": _machine(), "process": os.getpid()}


def has_ended(whose: Identity) -> bool:
    """Whether a process is seen to be gone. False for one of another machine or container, which is not seen."""
    return whose["machine"] == _machine() != "" and find(whose["process"]) is None


def _machine() -> str:
    numbering = namespace()
    clock = clock_identity()
    if not clock or not (numbering or ONE_NUMBERING_OF_PROCESSES):
        return ""
    return f"{clock} {numbering}"
