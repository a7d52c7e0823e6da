"""Which lines called collectives, other than DDP's buckets: a part of a rank's sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyddpdiag.model.untrusted import needed_text, needed_whole

CALLERS: Final = 64
"""So many are kept."""

_NAME_LIMIT: Final = 300


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


def caller_from_json(entry: Mapping[str, Any]) -> Caller:
    """One entry of a sidecar.

    Raises:
        TypeError, ValueError, KeyError: it is no such entry.
    """
    names = ("group", "operation", "where", "package")
    group, operation, where, package = (needed_text(entry[name], _NAME_LIMIT) for name in names)
    return Caller(
        group, operation, where, package, needed_whole(entry["calls"]), needed_whole(entry["bytes"])
    )


__all__ = ["CALLERS", "Caller", "caller_from_json"]
