"""Readings of the memory that a rank takes: a part of the file of its looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyddpdiag.model.untrusted import LATEST_NS, needed_list, needed_whole

MOST: Final = 512
"""Readings of one rank."""


@dataclass(frozen=True)
class Memory:
    """Bytes, the earliest reading first.

    Attributes:
        at_ns: when, on the records' clock.
        own: resident in the rank's process, without what it shares with others or maps from files.
        workers: the same of the processes that it started by multiprocessing, together.
        free: what was left to them: of the machine's memory, or of the container's if that is less.
        limit: of the container, or all that the machine has.
        container: whether the limit is one.
    """

    at_ns: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    limit: int = 0
    container: bool = False


_COLUMNS: Final = ("own", "workers", "free")


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """As it stands in the file, in KiB and microseconds; each time as the difference to the one before."""
    at_us = [at // 1000 for at in memory.at_ns]
    return {
        "at_us": [now - before for before, now in zip([0, *at_us], at_us, strict=False)],
        **{f"{name}_kib": [value >> 10 for value in getattr(memory, name)] for name in _COLUMNS},
        "limit_kib": memory.limit >> 10,
        "container": memory.container,
    }


def memory_from_json(raw: Any) -> Memory:
    """What can be understood of it.

    Raises:
        TypeError, ValueError, KeyError: it is not what a recorder writes.
    """
    if not isinstance(raw, Mapping):
        return Memory()  # of an older recorder
    at_ns, at = [], 0
    for step in needed_list(raw["at_us"], MOST):
        at += 1000 * needed_whole(step, LATEST_NS // 1000)
        at_ns.append(needed_whole(at, LATEST_NS))
    own, workers, free = (
        tuple(needed_whole(value, 2**43) << 10 for value in needed_list(raw[f"{name}_kib"], MOST))
        for name in _COLUMNS
    )
    if not len(at_ns) == len(own) == len(workers) == len(free):
        raise ValueError("readings that lack a part")
    limit = needed_whole(raw["limit_kib"], 2**43) << 10
    return Memory(tuple(at_ns), own, workers, free, limit, raw["container"] is True)
