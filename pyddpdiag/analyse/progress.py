"""How far each rank has come, and which rank the others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
