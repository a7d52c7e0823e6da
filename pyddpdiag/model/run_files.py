"""Names of the files of one run's folder: what is copied when traces are brought from one place to another."""

from __future__ import annotations

import re
from typing import Final

from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.command import NAME
from pyddpdiag.model.node import node_of

_RANK: Final = re.compile(r"rank_(0|[1-9][0-9]{0,6})\.[A-Za-z0-9_.]{1,64}")
_TRACE: Final = re.compile(r"rank_(0|[1-9][0-9]{0,6})\.ddptrace")
_UNFINISHED: Final = (".part", ".live")

HEADER_BYTES: Final = 4096
"""Of a trace; see docs/trace-format.md."""
RUN_ID: Final = slice(48, 64)
"""Where a trace's header has the run's identity; all zeros: it is not finished."""


def is_trace(name: str) -> bool:
    """Whether a file in a run's folder, named without its folder, is a rank's trace."""
    return _TRACE.fullmatch(name) is not None


def rank_of(name: str) -> int | None:
    """The rank whose trace, sidecar or note it is; None: no rank's."""
    found = _RANK.fullmatch(name)
    return int(found[1]) if found and not name.endswith(_UNFINISHED) else None


def belongs(name: str) -> bool:
    """Whether a file of this name, without its folder, is part of a run. Half copies are not."""
    return name == NAME or rank_of(name) is not None or node_of(name) is not None


def is_safe(relative: str) -> bool:
    """Whether a name that another machine gives is one of a run's files, at most one attempt's folder down."""
    attempt, slash, name = relative.rpartition("/")
    return belongs(name) and (not slash or attempt_number(attempt) is not None)
