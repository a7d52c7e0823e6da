"""Collectives other than buckets that some ranks called more often than others, which did not just lag behind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import SEVERAL
from pyddpdiag.analyse.calls.collectives import MEETING, RankCollectives
from pyddpdiag.analyse.calls.different import ALIKE
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.output import decode

NAMES: Final = tuple(dict.fromkeys((*ALIKE, *MEETING)))
"""Operations that every rank of a group calls. Not those between two ranks."""


@dataclass(frozen=True)
class UnequalCalls:
    """An operation that the ranks of a process group called unequally often.

    `calls` is how often, by rank; `step` the first in which a rank called it more often than one of those that have the
    fewest, None: not known. `crossed`: a rank with fewer calls of this is ahead in something else. `strayed`: the ranks
    that in that step did otherwise than in the steps before; empty: not known. `shared`: all called it in that step,
    though not as often. `early`: those with the most calls began fewer all-reduces of gradients.
    """

    operation: str
    calls: Mapping[int, int]
    step: int | None
    crossed: bool
    strayed: tuple[int, ...] = ()
    shared: bool = False
    early: bool = False


def unequal_calls(
    every: Sequence[Party],
    buckets: Mapping[int, Mapping[int, int]],
    finished: Collection[int],
    last_step: Mapping[int, int | None],
) -> Iterator[UnequalCalls]:
    """The operations whose counts cannot be those of ranks of which one is only behind.

    A rank that has called one operation less often than another rank may not have come so far. It has if it came to
    the end of its script, or if it has called something else more often.

    Args:
        every: the process groups, from `calls.parties`.
        buckets: the highest sequence number of each process group that each rank began.
        finished: the ranks that ended normally.
        last_step: the newest step of each rank; None: not known.
    """
    for party in every:
        counted = {name: counts for name in NAMES if (counts := party.calls(name))}
        # The groups whose buckets the members reduce: the party's own, or the only one.
        keys = {party.group} if party.group else set().union(*(buckets[rank] for rank in party.ranks))
        passes = [{rank: buckets[rank].get(key, -1) for rank in party.ranks} for key in keys]
        for name, counts in counted.items():
            fewest, most = min(counts.values()), max(counts.values())
            low = [rank for rank, amount in counts.items() if amount == fewest]
            high = [rank for rank, amount in counts.items() if amount == most]
            early = _is_ahead(low, high, passes)
            crossed = early or _is_ahead(low, high, counted.values())
            if fewest < most and (crossed or all(rank in finished for rank in low)):
                parts = dict(zip(party.ranks, party.parts, strict=True))
                steps = {rank: _by_step(part, name) for rank, part in parts.items()}
                more, fewer = steps[high[0]], steps[low[0]]
                first = min((step for step in more if more[step] > fewer.get(step, 0)), default=None)
                odd = [rank for rank in counts if _strayed(steps[rank], first, last_step[rank])]
                if not odd and crossed and all(_as_always(parts[rank], name, first) for rank in high):
                    # They went on without a call that the others made as ever.
                    odd = low
                yield UnequalCalls(
                    decode(name),
                    counts,
                    first,
                    crossed,
                    tuple(odd) if len(odd) < len(counts) else (),
                    first is not None and all(step_calls.get(first) for step_calls in steps.values()),
                    early,
                )


def _is_ahead(some: Sequence[int], others: Sequence[int], counts: Iterable[Mapping[int, int]]) -> bool:
    """Whether one of these ranks has made more of something than one of the others."""
    return any(each[one] > each[other] for each in counts for one in some for other in others)


def _strayed(amounts: Mapping[int, int], step: int | None, last: int | None) -> bool:
    """Whether a rank's calls in a step are not as many as in each of the steps right before it.

    Fewer only count where it has gone on to a later step: else they may have been about to come.
    """
    if step is None or step < SEVERAL:
        return False
    before, mine = {amounts.get(each, 0) for each in range(step - SEVERAL, step)}, amounts.get(step, 0)
    return len(before) == 1 and (mine > max(before) or (mine < max(before) and (last or 0) > step))


def _as_always(part: RankCollectives, name: bytes, step: int | None) -> bool:
    """Whether a rank called it in a step as often as in those right before, at the same places between its passes."""
    if step is None or step < SEVERAL or name not in part.names or not part.passes.any():
        return False
    mine = part.name == part.names.index(name)
    places = [np.sort(part.passes[mine & (part.step == each)]) for each in range(step - SEVERAL, step + 1)]
    if len({len(each) for each in places}) != 1 or not len(places[0]):
        return False
    between = np.diff(np.stack(places), axis=0)
    return bool((between == between[0]).all() and (between[0] > 0).all())


def _by_step(part: RankCollectives, name: bytes) -> dict[int, int]:
    """How often an operation was called, by step."""
    mine = part.name == part.names.index(name) if name in part.names else np.zeros(len(part.name), np.bool_)
    return dict(zip(*(each.tolist() for each in np.unique(part.step[mine], return_counts=True)), strict=True))
