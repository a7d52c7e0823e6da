"""Did all ranks put the same into their collectives, other than the buckets?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.calls.collectives import RankCollectives
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.pairing import NAMED, shown
from pyddpdiag.model.rows import Mismatch

ALIKE: Final = (b"gloo:all_reduce", b"gloo:broadcast", b"gloo:all_gather", b"gloo:reduce", b"gloo:gather")
"""Operations into which every rank puts the same number of bytes of the same type."""

Int64 = npt.NDArray[np.int64]


def different_calls(party: Party, group: str) -> Iterator[Mismatch]:
    """By operation, the first call of which the ranks of a process group put in different things.

    Only where every rank has the same number of them, and has lost none. `group` is its name; "" where there is only
    one.
    """
    parts = party.parts
    if len(parts) < 2 or not party.complete:
        return
    for name in ALIKE:
        calls = [_calls(part, name) for part in parts]
        if len({len(size) for size, _ in calls}) != 1 or not len(calls[0][0]):
            continue
        first, count = _first(calls)
        if first is None:
            continue
        differs = [len({int(each[column][first]) for each in calls}) > 1 for column in (0, 1)]
        field, column = ("bytes", 0) if differs[0] else ("dtype", 1)
        values = {
            rank: shown(field, int(each[column][first]))
            for rank, each in list(zip(party.ranks, calls, strict=True))[:NAMED]
        }
        step = int(parts[0].step[np.flatnonzero(parts[0].name == parts[0].names.index(name))[first]])
        yield Mismatch(group, first, step, field, values, count, name.decode())


def _calls(part: RankCollectives, name: bytes) -> tuple[Int64, Int64]:
    """Bytes and dtype of one rank's calls of an operation, in their order."""
    if name not in part.names:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    mine = np.flatnonzero(part.name == part.names.index(name))
    return part.bytes[mine], part.dtype[mine]


def _first(calls: Sequence[tuple[Int64, Int64]]) -> tuple[int | None, int]:
    """The first call from which on the ranks never have done the same again, and how many calls differ from there.

    Two workers may start on neighbouring calls in either order: what counts is what was called so far, in any order.
    """
    so_far = np.array([np.cumsum(_mixed(size, dtype)) for size, dtype in calls])
    alike = np.flatnonzero((so_far == so_far[0]).all(axis=0))
    first = int(alike[-1]) + 1 if len(alike) else 0
    if first == so_far.shape[1]:
        return None, 0
    differ = np.zeros(so_far.shape[1] - first, np.bool_)
    for size, dtype in calls[1:]:
        differ |= (size[first:] != calls[0][0][first:]) | (dtype[first:] != calls[0][1][first:])
    return (first, int(np.count_nonzero(differ))) if differ[0] else (None, 0)


def _mixed(size: Int64, dtype: Int64) -> npt.NDArray[np.uint64]:
    """A number for each call whose sums differ where the calls do; wraps around."""
    value = (size.astype(np.uint64) * np.uint64(16) + dtype.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed: npt.NDArray[np.uint64] = (value ^ (value >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed
