"""Did all ranks reduce with the same operation, and elements of the same type? Gloo lets both pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyddpdiag.model.reductions import ReductionKind, Reductions
from pyddpdiag.model.sidecar import Sidecar


@dataclass(frozen=True)
class DifferentReductions:
    """One operation of one process group with which ranks did different things.

    Attributes:
        operation: `all_reduce` or `reduce`.
        field: what differs.
        kinds: of each rank, in the first call that differs; where that is not known, of which it had more than others.
        call: the first one that differs, counted from 0 in this group; None: not known.
        step: of that call on the first rank; None: not known.
        whole: all ranks called it equally often, so that each call met the one of the same number.
    """

    operation: str
    field: Literal["op", "dtype"]
    kinds: Mapping[int, ReductionKind]
    call: int | None
    step: int | None
    whole: bool


def different_reductions(sidecars: Mapping[int, Sidecar]) -> tuple[DifferentReductions, ...]:
    """What differs between the ranks' calls, by group and operation."""
    by_call: dict[tuple[str, str], dict[int, Reductions]] = {}
    for rank, sidecar in sidecars.items():
        for one in sidecar.training.reductions:
            by_call.setdefault((one.group, one.operation), {})[rank] = one
    found = []
    for (_, operation), ranks in by_call.items():
        whole = len({one.calls for one in ranks.values()}) == 1
        # Of ranks that came to their end, those that called it more often did so for another reason (DDP's Join).
        if len(ranks) > 1 and (whole or not all(sidecars[rank].closed for rank in ranks)):
            found.append(_compared(operation, ranks, whole=whole))
    return tuple(one for one in found if one is not None)


def _compared(operation: str, ranks: Mapping[int, Reductions], *, whole: bool) -> DifferentReductions | None:
    calls = min(one.calls for one in ranks.values())
    kept = min(len(one.first) for one in ranks.values())
    # The last calls of all are side by side only where these are the same ones.
    last = min(len(one.last) for one in ranks.values()) if whole else 0
    since = max(kept, calls - last)
    for call in (*range(kept), *range(since, calls)):
        seen = {rank: one.at(call) for rank, one in ranks.items()}
        here = {rank: pair[0] for rank, pair in seen.items() if pair is not None}
        if len(here) == len(ranks) and (field := _field(here)):
            # The first one that differs may be among those that are not kept, if the first of the last does.
            sure = call != since or since == kept
            step = next(pair[1] for pair in seen.values() if pair is not None)
            return DifferentReductions(
                operation, field, here, call if sure else None, step if sure else None, whole
            )
    return _by_counts(operation, ranks) if whole else None


def _by_counts(operation: str, ranks: Mapping[int, Reductions]) -> DifferentReductions | None:
    """Ranks that made other kinds of calls, in calls that are not kept one by one."""
    counts = {rank: {kind.said: kind.calls for kind in one.kinds} for rank, one in ranks.items()}
    every = {said for mine in counts.values() for said in mine}
    more: dict[int, ReductionKind] = {}
    for rank, one in ranks.items():
        others = [mine for other, mine in counts.items() if other != rank]
        extra = [kind for kind in one.kinds if any(kind.calls > mine.get(kind.said, 0) for mine in others)]
        if extra:
            more[rank] = max(extra, key=lambda kind: kind.calls - min(o.get(kind.said, 0) for o in others))
    if len(every) < 2 or len(more) < 2 or not (field := _field(more)):
        return None
    return DifferentReductions(operation, field, more, None, None, whole=True)


def _field(kinds: Mapping[int, ReductionKind]) -> Literal["op", "dtype"] | None:
    if len({kind.op for kind in kinds.values()}) > 1:
        return "op"
    return "dtype" if len({kind.dtype for kind in kinds.values()}) > 1 else None
