"""Every other Gloo operation, by name and rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.calls.callers import callers, places
from pyddpdiag.analyse.grouped import Float64, stats_by
from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.passes import Passes
from pyddpdiag.model.rows import CollectiveStats
from pyddpdiag.output import decode
from pyddpdiag.trace.layout import CollectiveTime, Flag, Records
from pyddpdiag.trace.rows import Bool, Int64, UInt64, is_in_flight
from pyddpdiag.trace.run import Run

MEETING: Final = (
    b"gloo:all_gather",
    b"gloo:all_reduce",
    b"gloo:all_to_all",
    b"gloo:barrier",
    b"gloo:reduce_scatter",
)
"""Collectives that end on no rank, unless they fail, before every rank of the group has begun them."""

NEVER: Final = np.uint64(2**64 - 1)

NAME_LIMIT: Final = 256
"""Gloo has some twenty operations; a damaged file could claim millions of names."""


@dataclass(frozen=True, eq=False)
class RankCollectives:
    """One rank's other collectives: `name` is a number into `names`; `took_ms` is NaN where it is not known.

    `group` is the process group's id, 0 = not known. `is_open`: it began and did not end; `is_waiting`: nor did its
    recorder close. `begun` and `ended` are nanoseconds on the rank's clock, 0 = not seen. `called` is how often each
    name was called, as far as the records tell: the newest carries its running number. `bytes` and `dtype` are of what
    the rank puts in. `beside`: it began while a backward pass that reduces, or the forward pass before it,
    went on, or may have. `passes`: how many of those that are known had ended by then.
    """

    names: tuple[bytes, ...]
    name: npt.NDArray[np.uint32]
    group: UInt64
    begun: Int64
    ended: Int64
    step: npt.NDArray[np.uint32]
    took_ms: Float64
    is_open: Bool
    is_waiting: Bool
    called: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    dtype: npt.NDArray[np.int64]
    beside: Bool
    passes: npt.NDArray[np.int64]

    def of_group(self, key: int) -> RankCollectives:
        """Those of one process group.

        A rank numbers its calls by name, whatever their group. How often it called one in a group is known as long as
        all calls have a record, which names it; -1: it is not.
        """
        mine, names = self.group == np.uint64(key), len(self.names)
        known = np.bincount(self.name[self.group != 0], minlength=names) == self.called
        called = np.where(known, np.bincount(self.name[mine], minlength=names), -1)
        columns = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("names", "called")
        }
        return RankCollectives(
            names=self.names, called=called, **{name: column[mine] for name, column in columns.items()}
        )


def rank_collectives(records: Records, passes: Passes) -> RankCollectives:
    """What reports need from one rank's records of collectives and from its passes."""
    raw, codes = np.unique(records["name"], return_inverse=True)
    times = records["times"]
    called = np.bincount(codes, minlength=len(raw)).astype(np.int64)
    # No more than a rank can have called since its start: a damaged number must not wrap around.
    np.maximum.at(called, codes, np.minimum(records["sequence"], np.uint64(2**62)).astype(np.int64) + 1)
    started, ended = times[:, CollectiveTime.STARTED], times[:, CollectiveTime.ENDED]
    has_no_end = ended == 0
    is_abandoned = (records["flags"] & Flag.ABANDONED) > 0
    return RankCollectives(
        names=tuple(bytes(name) for name in raw),
        name=codes.astype(np.uint32),
        group=_groups(records),
        begun=started.copy(),
        ended=ended.copy(),
        step=records["step"].copy(),
        took_ms=np.where((ended > 0) & (started > 0), (ended - started) / 1e6, np.nan),
        is_open=has_no_end & (is_in_flight(records) | is_abandoned),
        is_waiting=has_no_end & is_in_flight(records) & ~is_abandoned,
        called=called,
        bytes=records["bytes"].astype(np.int64),
        dtype=records["dtype"].astype(np.int64),
        beside=_beside(started, passes),
        passes=np.searchsorted(_ends(passes), started).astype(np.int64),
    )


def _beside(begun: Int64, passes: Passes) -> Bool:
    """Whether each call began between the begin of a pass's forward and the end of its backward.

    Where the begin of a forward pass was not seen, nothing is known of the calls before its end.
    """
    ends = _ends(passes)
    order = np.argsort(passes.finalize_end, kind="stable")[len(passes) - len(ends) :]
    if not len(ends):
        return np.ones(len(begun), np.bool_)
    following = np.searchsorted(ends, begun)
    inside = following < len(ends)
    begin = passes.forward_begin[order][np.minimum(following, len(ends) - 1)]
    return np.asarray(inside & (begin <= begun))


def _ends(passes: Passes) -> Int64:
    """When passes ended, in this order."""
    return np.sort(passes.finalize_end[passes.finalize_end > 0])


def _groups(records: Records) -> UInt64:
    """The process group of each; where a record does not tell, that of others on its thread."""
    group = records["group"].astype(np.uint64)
    threads, thread = np.unique(records["thread"], return_inverse=True)
    low, high = np.full(len(threads), NEVER, np.uint64), np.zeros(len(threads), np.uint64)
    known = group != 0
    np.minimum.at(low, thread[known], group[known])
    np.maximum.at(high, thread[known], group[known])
    # The system gives the number of a thread that has ended to another one.
    sure = np.where(low == high, high, np.uint64(0))
    return np.where(known, group, sure[thread])


def whole_rows(part: RankCollectives, name: bytes) -> Int64:
    """The rows of one operation's calls that have a begin and an end, in the order of their begins."""
    if name not in part.names:
        return np.empty(0, np.int64)
    mine = np.flatnonzero((part.name == part.names.index(name)) & (part.begun > 0) & (part.ended > 0))
    return mine[np.argsort(part.begun[mine], kind="stable")]


@dataclass(frozen=True)
class Calls:
    """One operation: how often it is called in a step, and the median of its bytes; 0: not known."""

    name: str
    per_step: float
    bytes: int


def heaviest(
    parts: Sequence[RankCollectives], steps: npt.NDArray[np.int64], rooted: Mapping[bytes, Float64]
) -> Calls | None:
    """The operation that took most time in some steps, on the rank on which it took least; None: there is none.

    Args:
        rooted: what those from a root cost each step, which counts instead.
    """
    found: dict[bytes, list[tuple[float, int, int]]] = {}
    for part in parts:
        mine = np.isin(part.step, steps)
        for code in np.unique(part.name[mine]).tolist():
            rows = mine & (part.name == code)
            took, size = float(np.nansum(part.took_ms[rows])), int(np.median(part.bytes[rows]))
            found.setdefault(part.names[code], []).append((took, int(np.count_nonzero(rows)), size))
    if not found or not len(steps):
        return None
    cost = {name: min(took for took, _, _ in found[name]) for name in found}
    raw = max(found, key=lambda name: max(cost[name], float(rooted[name].sum()) if name in rooted else 0.0))
    _, calls, size = min(found[raw])
    return Calls(decode(raw) or "unknown", round(calls / len(steps), 2), size)


def exchanged_bytes(parts: Iterable[RankCollectives]) -> float:
    """The most that a rank put into collectives other than buckets.

    Infinite where two ranks sent messages to each other: those of a pipeline are small, and it has one model.
    """
    most = 0.0
    for part in parts:
        if any(name.startswith((b"gloo:send", b"gloo:recv")) for name in part.names):
            return np.inf
        most = max(most, float(part.bytes.sum()))
    return most


def collective_stats(
    run: Run,
    parts: Sequence[RankCollectives],
    names: Names,
    waits: Mapping[tuple[int, bytes, int], float],
    step: int | None = None,
) -> tuple[CollectiveStats, ...]:
    """All other collectives of a run, or of one step; those that took most time first.

    Args:
        waits: the median wait for the last rank in ms, by rank, name and group; 0: there is only one.
    """
    several = len(names.groups) > 1
    found = []
    for trace, part in zip(run.ranks, parts, strict=True):
        # With one group, which of its workers has carried a bucket is of no interest.
        for key in sorted({*part.group.tolist(), 0}) if several else (0,):
            mine = part.of_group(key) if several else part
            for raw, stats in _of_rank(trace.rank, mine, step):
                group = names.group(key) if key else None
                at = places(callers(trace.sidecar, stats.name, (group,) if group else ()))
                found.append(replace(stats, group=group, wait_ms=waits.get((trace.rank, raw, key)), where=at))
    total: dict[str, float] = {}
    for stats in found:
        total[stats.name] = total.get(stats.name, 0.0) + stats.total_ms
    return tuple(
        sorted(found, key=lambda stats: (-total[stats.name], stats.name, stats.rank, stats.group or ""))
    )


def _of_rank(rank: int, part: RankCollectives, step: int | None) -> list[tuple[bytes, CollectiveStats]]:
    if not part.names:
        return []
    chosen = slice(None) if step is None else np.flatnonzero(part.step == step)
    codes, took, is_open = part.name[chosen].astype(np.int64), part.took_ms[chosen], part.is_open[chosen]
    names = len(part.names)
    count = np.bincount(codes, minlength=names)
    open_count = np.bincount(codes[is_open], minlength=names)
    total = np.bincount(codes, np.nan_to_num(took), minlength=names)
    stats = stats_by(took, codes, names)
    there = np.flatnonzero(count)
    return [
        (
            part.names[code],
            CollectiveStats(
                name=decode(part.names[code]) or "unknown",
                rank=rank,
                count=int(count[code]),
                median_ms=stats[code].median,
                p95_ms=stats[code].p95,
                total_ms=float(total[code]),
                in_flight=int(open_count[code]),
            ),
        )
        for code in there[np.argsort(-total[there], kind="stable")][:NAME_LIMIT].tolist()
    ]
