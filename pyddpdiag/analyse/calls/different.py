"""Did the ranks make the same calls of collectives other than buckets? What they put in, and how often."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import SEVERAL
from pyddpdiag.analyse.calls.collectives import MEETING, RankCollectives
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.pairing import NAMED, shown
from pyddpdiag.analyse.standstill import Awaited
from pyddpdiag.model.rows import Mismatch
from pyddpdiag.output import decode

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
        buckets: the highest sequence number of each process group that each rank began.
        finished: the ranks that ended normally.
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


@dataclass(frozen=True)
class Unmatched:
    """A collective that ended on some ranks (`ended`) and that others (`missing`) never began: it failed."""

    what: str
    ended: tuple[int, ...]
    missing: tuple[int, ...]


def awaited_collectives(every: Sequence[Party], parts: Sequence[RankCollectives]) -> Iterator[Awaited]:
    """The other collectives that some rank began and did not end, by process group and name."""
    for party in (*every, *_of_unknown_group(every, parts)):
        for name, waiting in _by_name(party, "is_waiting"):
            others = [rank for rank in party.ranks if rank not in waiting]
            counts = party.calls(name)
            behind = [rank for rank in others if counts and counts[rank] < max(counts.values())]
            unsure = () if counts else tuple(others)
            yield Awaited(
                "collective", decode(name) or "unknown", None, tuple(waiting), tuple(behind), unsure
            )


def unmatched_collectives(every: Sequence[Party]) -> Iterator[Unmatched]:
    """The last collectives that cannot have succeeded, by process group and name.

    Only where counts can be compared, and where they differ by one: a script rarely goes on after a failure.
    """
    for party in every:
        still_open = dict(_by_name(party, "is_open"))
        for name in MEETING:
            counts = {} if name in still_open else party.calls(name)
            most = max(counts.values(), default=0)
            missing = tuple(rank for rank, amount in counts.items() if amount == most - 1)
            ended = tuple(rank for rank, amount in counts.items() if amount == most)
            if missing and len(missing) + len(ended) == len(counts):
                yield Unmatched(decode(name), ended, missing)


def _of_unknown_group(every: Sequence[Party], parts: Sequence[RankCollectives]) -> Iterator[Party]:
    """The calls that name no group, where there are several: nobody knows who takes part in them."""
    if every and all(party.group for party in every):
        rank_of = {who: rank for party in every for who, rank in zip(party.members, party.ranks, strict=True)}
        known = sorted(rank_of)
        yield replace(
            every[0],
            group=0,
            members=tuple(known),
            ranks=tuple(rank_of[who] for who in known),
            parts=tuple(parts[who].of_group(0) for who in known),
            complete=False,
        )


def _by_name(party: Party, column: Literal["is_waiting", "is_open"]) -> Iterator[tuple[bytes, list[int]]]:
    """The ranks that have such calls, by the operation's name."""
    found: dict[bytes, list[int]] = {}
    for rank, part in zip(party.ranks, party.parts, strict=True):
        for code in np.unique(part.name[getattr(part, column)]).tolist():
            found.setdefault(part.names[code], []).append(rank)
    yield from sorted(found.items())
