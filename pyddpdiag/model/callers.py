"""Which lines called collectives, other than DDP's buckets: a part of a rank's sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CALLERS: Final = 64
"""So many are kept."""


@dataclass(frozen=True)
class Caller:
    """A line that called an operation (`all_reduce`) in a process group.

    `package`: whose line it is: a framework's name (`FRAMEWORKS`), or a Python package's; empty: the script's. `bytes`:
    of its last call.
    """

    group: str
    operation: str
    where: str
    package: str
    calls: int
    bytes: int
