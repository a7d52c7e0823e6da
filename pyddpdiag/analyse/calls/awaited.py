"""In which collectives other than buckets ranks wait, and which ranks never began them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pyddpdiag.analyse.calls.collectives import MEETING, RankCollectives
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.progress import Awaited
from pyddpdiag.output import decode


@dataclass(frozen=True)
class Unmatched:
    """A collective that ended on some ranks (`ended`) and that others (`missing`) never began: it failed."""

    what: str
    ended: tuple[int, ...]
    missing: tuple[int, ...]


def awaited_collectives(every: Sequence[Party], parts: Sequence[RankCollectives]) -> Iterator[Awaited]:
    """The other collectives that some rank began and did not end, by process group and name.

    Args:
        every: the process groups, from `calls.parties`.
        parts: what each rank of the run recorded.
    """
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
