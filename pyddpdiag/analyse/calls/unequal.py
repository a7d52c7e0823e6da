"""Collectives other than buckets that some ranks called more often than others, which did not just lag behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import SEVERAL
from pyddpdiag.analyse.calls.awaited import calls_by_member
from pyddpdiag.analyse.calls.collectives import MEETING, RankCollectives
from pyddpdiag.analyse.calls.different import ALIKE
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.progress import Progress
from pyddpdiag.output import decode
from pyddpdiag.trace.rows import Bool

NAMES: Final = tuple(dict.fromkeys((*ALIKE, *MEETING)))
"""Operations that every rank of a group calls. Not those between two ranks."""


@dataclass(frozen=True)
class UnequalCalls:
    """An operation that the ranks of a process group called unequally often.

    `calls` is how often, by rank; `step` the first in which a rank called it more often than one of those that have the
    fewest, None: not known. `crossed`: a rank with fewer calls of this is ahead in something else. `strayed`: the ranks
    that in that step did otherwise than in the steps before; empty: not known. `shared`: all called it in that step,
    though not as often.
    """

    operation: str
    calls: Mapping[int, int]
    step: int | None
    crossed: bool
    strayed: tuple[int, ...] = ()
    shared: bool = False


def unequal_calls(
    every: Sequence[Party],
    parts: Sequence[RankCollectives],
    reached: Sequence[Progress],
    finished: frozenset[int],
    last_step: Mapping[int, int | None],
) -> tuple[UnequalCalls, ...]:
    """The operations whose counts cannot be those of ranks of which one is only behind.

    A rank that has called one operation less often than another rank may not have come so far. It has if it came to
    the end of its script, or if it has called something else more often.

    Args:
        every: the process groups, from `calls.parties`.
        parts: what each rank of the run recorded.
        reached: how far each has come.
        finished: the ranks that ended normally.
        last_step: the newest step of each rank; None: not known.
    """
    found = []
    for party in every:
        counted = {name: calls_by_member(party, name, parts, reached) for name in NAMES}
        ahead = [
            {who: reached[who].buckets.get(key, -1) for who in party.members} for key in _keys(party, reached)
        ]
        ahead += [counts for counts in counted.values() if counts]
        for name, counts in counted.items():
            fewest, most = min(counts.values(), default=0), max(counts.values(), default=0)
            low = [who for who, amount in counts.items() if amount == fewest]
            high = [who for who, amount in counts.items() if amount == most]
            if fewest == most:
                continue
            crossed = any(other[who] > other[above] for other in ahead for who in low for above in high)
            if crossed or all(reached[who].rank in finished for who in low):
                steps = {who: _by_step(parts[who], name, party.group) for who in counts}
                first = _first_step(steps[high[0]], steps[low[0]])
                odd = [who for who in counts if _strayed(steps[who], first, last_step[reached[who].rank])]
                if (
                    not odd
                    and crossed
                    and all(_as_always(parts[who], name, party.group, first) for who in high)
                ):
                    # They went on without a call that the others made as ever.
                    odd = low
                found.append(
                    UnequalCalls(
                        decode(name),
                        {reached[who].rank: amount for who, amount in counts.items()},
                        first,
                        crossed,
                        tuple(reached[who].rank for who in odd) if len(odd) < len(counts) else (),
                        first is not None and all(step_calls.get(first) for step_calls in steps.values()),
                    )
                )
    return tuple(found)


def _keys(party: Party, reached: Sequence[Progress]) -> list[int]:
    """The groups whose buckets the members reduce: the party's own, or the only one."""
    return (
        [party.group]
        if party.group
        else sorted(set().union(*(reached[who].buckets for who in party.members)))
    )


def _first_step(more: Mapping[int, int], fewer: Mapping[int, int]) -> int | None:
    """The first step in which one rank called an operation more often than another one."""
    return min((step for step, amount in more.items() if amount > fewer.get(step, 0)), default=None)


def _strayed(amounts: Mapping[int, int], step: int | None, last: int | None) -> bool:
    """Whether a rank's calls in a step are not as many as in each of the steps right before it.

    Fewer only count where it has gone on to a later step: else they may have been about to come.
    """
    custom, mine = _custom(amounts, step), _in(amounts, step)
    if step is None or custom is None:
        return False
    return mine > custom or (mine < custom and (last or 0) > step)


def _custom(amounts: Mapping[int, int], step: int | None) -> int | None:
    """How often a rank called it in each of the steps right before; None: not alike, or there are too few."""
    if step is None or step < SEVERAL:
        return None
    before = {amounts.get(earlier, 0) for earlier in range(step - SEVERAL, step)}
    return before.pop() if len(before) == 1 else None


def _as_always(part: RankCollectives, name: bytes, group: int, step: int | None) -> bool:
    """Whether a rank called it in a step as often as in those right before, at the same places between its passes."""
    if step is None or step < SEVERAL or name not in part.names or not part.passes.any():
        return False
    mine = _of(part, name, group)
    places = [np.sort(part.passes[mine & (part.step == each)]) for each in range(step - SEVERAL, step + 1)]
    if len({len(each) for each in places}) != 1 or not len(places[0]):
        return False
    between = np.diff(np.stack(places), axis=0)
    return bool((between == between[0]).all() and (between[0] > 0).all())


def _in(amounts: Mapping[int, int], step: int | None) -> int:
    return 0 if step is None else amounts.get(step, 0)


def _by_step(part: RankCollectives, name: bytes, group: int) -> dict[int, int]:
    if name not in part.names:
        return {}
    steps, amounts = np.unique(part.step[_of(part, name, group)], return_counts=True)
    return dict(zip(steps.tolist(), amounts.tolist(), strict=True))


def _of(part: RankCollectives, name: bytes, group: int) -> Bool:
    mine = part.name == part.names.index(name)
    return np.asarray(mine & (part.group == np.uint64(group)) if group else mine)


__all__ = ["UnequalCalls", "unequal_calls"]
