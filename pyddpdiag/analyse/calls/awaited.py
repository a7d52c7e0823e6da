"""In which collectives other than buckets ranks wait, and which ranks never began them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.calls.collectives import MEETING, RankCollectives
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.progress import Awaited, Progress
from pyddpdiag.output import decode
from pyddpdiag.trace.rows import Bool


@dataclass(frozen=True)
class Unmatched:
    """A collective that ended on some ranks (`ended`) and that others (`missing`) never began: it failed."""

    what: str
    ended: tuple[int, ...]
    missing: tuple[int, ...]


def awaited_collectives(
    every: Sequence[Party], parts: Sequence[RankCollectives], reached: Sequence[Progress]
) -> tuple[Awaited, ...]:
    """The other collectives that some rank began and did not end, by process group and name.

    Args:
        every: the process groups, from `calls.parties`.
        parts: what each rank of the run recorded.
        reached: how far each has come.
    """
    found = []
    for party in (*every, *_of_unknown_group(every, parts)):
        waits = [_names(part, part.is_waiting) for part in party.parts]
        for name in sorted(set().union(*waits)):
            waiting = [who for who, names in zip(party.members, waits, strict=True) if name in names]
            others = [who for who in party.members if who not in waiting]
            counts = calls_by_member(party, name, parts, reached) if party in every else {}
            most = max(counts.values(), default=0)
            behind = [who for who in others if counts and counts[who] < most]
            unsure = [] if counts else others
            found.append(
                Awaited(
                    "collective",
                    decode(name) or "unknown",
                    None,
                    *(tuple(reached[who].rank for who in places) for places in (waiting, behind, unsure)),
                )
            )
    return tuple(found)


def unmatched_collectives(
    every: Sequence[Party], parts: Sequence[RankCollectives], reached: Sequence[Progress]
) -> tuple[Unmatched, ...]:
    """The last collectives that cannot have succeeded, by process group and name.

    Only where counts can be compared, and where they differ by one: a script rarely goes on after a failure.

    Args:
        every: the process groups, from `calls.parties`.
        parts: what each rank of the run recorded.
        reached: how far each has come.
    """
    found = []
    for party in every:
        still_open = {name for part in party.parts for name in _names(part, part.is_open)}
        for name in MEETING:
            counts = calls_by_member(party, name, parts, reached) if name not in still_open else {}
            most = max(counts.values(), default=0)
            missing = [who for who, amount in counts.items() if amount == most - 1]
            ended = [who for who, amount in counts.items() if amount == most]
            if missing and len(missing) + len(ended) == len(counts):
                ranks = (tuple(reached[who].rank for who in places) for places in (ended, missing))
                found.append(Unmatched(decode(name), *ranks))
    return tuple(found)


def _of_unknown_group(every: Sequence[Party], parts: Sequence[RankCollectives]) -> tuple[Party, ...]:
    """The calls that name no group, where there are several: nobody knows who takes part in them."""
    if not all(party.group for party in every):
        return ()
    return (Party(0, tuple(range(len(parts))), tuple(part.of_group(0) for part in parts)),)


def calls_by_member(
    party: Party, name: bytes, parts: Sequence[RankCollectives], reached: Sequence[Progress]
) -> dict[int, int]:
    """How often each member, by its place, called an operation in this group; empty: that is not known of all."""
    if not all(reached[who].complete for who in party.members):
        return {}
    counts = {who: _calls_of(parts[who], name, party.group) for who in party.members}
    return {} if None in counts.values() else {who: amount or 0 for who, amount in counts.items()}


def _calls_of(part: RankCollectives, name: bytes, group: int) -> int | None:
    """How often a rank called an operation in a process group; in all, if it is 0. None: not known.

    A rank numbers its calls by name, whatever their group. Of a single group they are known as long as all have a
    record, which names it.
    """
    if name not in part.names:
        return 0
    code = part.names.index(name)
    called = int(part.called[code])
    if not group:
        return called
    groups = part.group[part.name == code]
    known = len(groups) == called and bool((groups != 0).all())
    return int(np.count_nonzero(groups == np.uint64(group))) if known else None


def _names(part: RankCollectives, rows: Bool) -> set[bytes]:
    return {part.names[code] for code in np.unique(part.name[rows]).tolist()}
