"""Did all ranks make the same all-reduces? Gaps and mismatches between them, and steps with fewer buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.operations import LISTED
from pyddpdiag.model.rows import Gap, Mismatch
from pyddpdiag.trace.layout import DTYPE_NAMES
from pyddpdiag.trace.ledger import COMPARED

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView


NAMED: Final = 64

FIELDS: Final = {"bytes": "bytes", "dtype": "dtype", "bucket": "reference"}
"""What must be the same on all ranks, and the column that holds it."""


def gaps(view: RunView) -> tuple[Gap, ...]:
    """Where a rank of a group has no record of an occurrence that others have; at most a thousand entries."""
    found: list[Gap] = []
    for key, ledger in view.merged.groups():
        if (ledger.common["count"] >= view.memberships[key].expected).all():
            continue
        seen = ledger.sequence
        for who in view.memberships[key].members:
            share = ledger.shares.get(who)
            if share is None:
                before, after, between, last = 0, len(seen), 0, None
            else:
                low, last = share.low[0], int(share.high[-1])
                before = int(np.searchsorted(seen, low, "left"))
                after = len(seen) - int(np.searchsorted(seen, share.high[-1], "right"))
                between = len(seen) - before - after - share.count
            if before or between or after:
                rank, group = view.progress[who].rank, view.names.group(key)
                found.append(Gap(rank, group, before, between, after, last, int(seen[-1])))
        if len(found) >= LISTED:
            break
    return tuple(found[:LISTED])


def mismatches(view: RunView) -> tuple[Mismatch, ...]:
    """All-reduces in which bytes, dtype or bucket differ between ranks; per field its first case."""
    groups = [(key, ledger) for key, ledger in view.merged.groups() if ledger.common["differs"].any()]
    found = []
    for field, column in FIELDS.items():
        bit = np.uint8(1 << COMPARED.index(column))
        differs = [np.flatnonzero(ledger.common["differs"] & bit) for _, ledger in groups]
        cases = [number for number, places in enumerate(differs) if len(places)]
        if not cases:
            continue
        (key, ledger), case = groups[cases[0]], int(differs[cases[0]][0])
        sequence = int(ledger.sequence[case])
        usual = int(ledger.common[column][case])
        values: dict[int, str] = {}
        for who, share in ledger.shares.items():
            if share.has(sequence) and len(values) < NAMED:
                # Nothing differs before the first case, so every rank that differs in it has it as its own
                # first case.
                at, value = share.differing.get(column, (-1, usual))
                values[view.progress[who].rank] = shown(field, value if at == sequence else usual)
        found.append(
            Mismatch(
                group=view.names.group(key),
                sequence=sequence,
                step=int(ledger.common["step"][case]),
                field=field,
                values=values,
                count=sum(map(len, differs)),
            )
        )
    return tuple(found)


def shown(field: str, value: int) -> str:
    """A value in which ranks differ."""
    if field == "dtype":
        return DTYPE_NAMES[value] if value < len(DTYPE_NAMES) else "other"
    return Names.bucket(value) if field == "bucket" else str(value)


@dataclass(frozen=True)
class Skipped:
    """A rank with fewer buckets than most ranks in some steps.

    `step` is the first of them, with `buckets` of the `usual` number, and `times` how many there are.
    """

    rank: int
    step: int
    buckets: int
    usual: int
    times: int


@dataclass(frozen=True)
class SkippedSteps:
    """All of a run, the earliest first. `aligned`: the ranks' step numbers mean the same steps up to the end."""

    ranks: tuple[Skipped, ...] = ()
    aligned: bool = False


def skipped_steps(view: RunView) -> SkippedSteps:
    """What the step records tell.

    Nothing is reported of ranks that paused or lost records, nor where ranks belong to different process groups:
    they may well have different numbers of buckets. In a failed or stuck step ranks come unevenly far.
    """
    steps, run = view.steps, view.run
    before = min((error.step for error in view.errors.first), default=2**63)
    everyone = all(group.expected == len(run.ranks) for group in view.memberships.values())
    if steps.source != "step records" or len(run.ranks) < 2 or not everyone or not len(steps):
        return SkippedSteps()
    ranks = np.array([trace.rank for trace in run.ranks])
    row_of = np.searchsorted(ranks, steps.rank)
    lasts, firsts = np.full(len(ranks), -1), np.full(len(ranks), np.iinfo(np.int64).max)
    np.maximum.at(lasts, row_of, steps.step)
    np.minimum.at(firsts, row_of, steps.step)
    last = lasts.tolist()
    # The first step of such a rank is there only in part.
    cut = np.array([trace.begins_late for trace in run.ranks]) & (lasts >= 0)
    first_whole = int(firsts[cut].max(initial=-1)) + 1
    # In its last step a rank may have been on its way; after it, it has no row.
    end = min([*last, before])
    kept = steps.take((steps.step >= first_whole) & (steps.step < end))
    numbers, begin, size = np.unique(kept.step, return_index=True, return_counts=True)
    whole = begin[size == len(ranks)]
    if not len(whole):
        return SkippedSteps()
    counts = kept.buckets[whole[:, None] + np.arange(len(ranks))]
    usual = np.sort(counts, axis=1)[:, len(ranks) // 2]
    found = []
    for place, trace in enumerate(run.ranks):
        if trace.header.skipped or not trace.is_whole:
            continue
        # Fewer than the others, and than it has itself elsewhere: else the others have more than they should.
        mine = counts[:, place]
        fewer = np.flatnonzero((mine < usual) & (mine < mine.max()))
        if len(fewer):
            at = int(fewer[0])
            found.append(
                Skipped(
                    trace.rank,
                    int(numbers[size == len(ranks)][at]),
                    int(counts[at, place]),
                    int(usual[at]),
                    len(fewer),
                )
            )
    return SkippedSteps(tuple(sorted(found, key=lambda one: (one.step, one.rank))), max(last) == min(last))
