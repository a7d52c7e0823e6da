"""Steps in which a rank has fewer buckets than the others: it skipped a backward pass, or a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView


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
