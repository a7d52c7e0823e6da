"""How far each rank has come, which rank the others wait for, and whether a live run stands still."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyddpdiag.analyse.bounds import MANY_STEPS, STILL_MS, UNKNOWN_STEP_MS
from pyddpdiag.trace.merge import Merged
from pyddpdiag.trace.run import Run

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView


@dataclass(frozen=True)
class Progress:
    """One rank's counts.

    `buckets` is the highest sequence number that it began in each process group (by id). `complete`: each operation
    that it began lately has a record (none was paused or lost); older ones may have been overwritten.
    """

    rank: int
    buckets: Mapping[int, int]
    complete: bool


@dataclass(frozen=True)
class Awaited:
    """An operation in which ranks wait, and the ranks of its group that never began it.

    `kind` is `bucket` or `collective`, `what` the bucket's id or the collective's name, `step` None where it is not
    known. `unsure`: ranks that may or may not have begun it.
    """

    kind: str
    what: str
    step: int | None
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    unsure: tuple[int, ...] = ()


def progress(run: Run, merged: Merged) -> tuple[Progress, ...]:
    """The counts of every rank of the run."""
    highest: list[dict[int, int]] = [{} for _ in run.ranks]
    for key, ledger in merged.groups():
        for who, share in ledger.shares.items():
            highest[who][key] = int(share.high[-1])
    found = []
    for trace, buckets in zip(run.ranks, highest, strict=True):
        header = trace.header
        found.append(Progress(trace.rank, buckets, trace.is_whole and not header.skipped))
    return tuple(found)


def awaited_buckets(view: RunView) -> Iterator[Awaited]:
    """In each process group the first bucket that some rank began and did not end."""
    for key, ledger in view.merged.groups():
        waiting = {who: share.waiting for who, share in ledger.shares.items() if share.waiting is not None}
        if not waiting:
            continue
        first = min(waiting.values(), key=lambda one: one.sequence)
        missing: list[int] = []
        unsure: list[int] = []
        for who in view.memberships[key].members:
            one = view.progress[who]
            if one.buckets.get(key, -1) < first.sequence:
                # A paused rank, or one that lost records, may have begun what it has no record of.
                (missing if one.complete else unsure).append(one.rank)
        yield Awaited(
            "bucket",
            view.names.bucket(first.reference),
            first.step,
            tuple(view.progress[who].rank for who, one in waiting.items() if one.sequence == first.sequence),
            tuple(missing),
            tuple(unsure),
        )


@dataclass(frozen=True)
class Standstill:
    """Nothing was recorded on any rank for `silent_ms`, though some process is alive.

    `awaited` is the operation in which most ranks wait; None if no rank waits: they may evaluate, or write a
    checkpoint.
    """

    silent_ms: float
    awaited: Awaited | None


def threshold_ms(step_ms: float, least_ms: float = STILL_MS) -> float:
    """How long nothing must be recorded for a standstill; `step_ms` is the median step, NaN = not known."""
    return max(least_ms, MANY_STEPS * step_ms) if step_ms == step_ms else UNKNOWN_STEP_MS


def quiet_ms(view: RunView) -> float | None:
    """For how long no rank that may still run has recorded anything; None if there is none, or one is not known."""
    ranks = zip(view.ranks, view.now.ranks, strict=True)
    silent = [seen.silent_ms for rank, seen in ranks if not rank.closed and seen.alive is not False]
    known = [value for value in silent if value is not None]
    return min(known) if known and len(known) == len(silent) else None


def standstill(view: RunView, least_ms: float = STILL_MS) -> Standstill | None:
    """The standstill of a run; None if the run goes on, is over, or cannot be seen. A shorter silence is none."""
    silent = quiet_ms(view) if view.now.is_live else None
    if silent is None or silent < threshold_ms(view.judged.wall_ms, least_ms):
        return None
    return Standstill(silent, max(view.awaited, key=lambda one: len(one.waiting), default=None))
