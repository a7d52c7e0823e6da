"""Collectives other than buckets, call by call over the ranks that meet in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, SEVERAL
from pyddpdiag.analyse.calls.collectives import MEETING, RankCollectives, whole_rows
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.standstill import Progress
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.merge import Membership
from pyddpdiag.trace.rows import Int64
from pyddpdiag.trace.run import Run


@dataclass(frozen=True, eq=False)
class Party:
    """Ranks that call the same collectives, and what each of them recorded of it (`parts`).

    Attributes:
        group: the process group's id; 0: the run has only one.
        members: places in the run, of `ranks`.
        complete: none of them lost a record.
        offset_ns: of each one's clock to the common one.
        error_ms: how wrong these may be; infinite: nobody knows.
    """

    group: int
    members: tuple[int, ...]
    ranks: tuple[int, ...]
    parts: tuple[RankCollectives, ...]
    complete: bool
    offset_ns: Int64
    error_ms: float

    def calls(self, name: bytes) -> dict[int, int]:
        """How often each rank called an operation; empty: that is not known of all."""
        counts = {
            rank: int(part.called[part.names.index(name)]) if name in part.names else 0
            for rank, part in zip(self.ranks, self.parts, strict=True)
        }
        return counts if self.complete and min(counts.values(), default=0) >= 0 else {}

    def rows(self, name: bytes) -> list[Int64] | None:
        """Each member's calls of an operation, in their order; None: they cannot be paired, or are too few."""
        rows = [whole_rows(part, name) for part in self.parts]
        return rows if len({len(each) for each in rows}) == 1 and len(rows[0]) >= SEVERAL else None

    def times(self, rows: Sequence[Int64]) -> tuple[Int64, Int64]:
        """Begin and end of these calls on the common clock, [calls, members]."""
        begun, ended = (
            np.stack([getattr(part, column)[at] for part, at in zip(self.parts, rows, strict=True)], axis=1)
            + self.offset_ns
            for column in ("begun", "ended")
        )
        return begun, ended


def parties(
    run: Run,
    parts: Sequence[RankCollectives],
    memberships: Mapping[int, Membership],
    reached: Sequence[Progress],
    clocks: Sequence[ClockOffset],
) -> Iterator[Party]:
    """The ranks of each process group that is known by its collectives; all ranks where there is a single group.

    Args:
        memberships: the groups that reduced buckets.
    """
    groups = run.groups()
    # A collective before the first bucket names no group, and there is no other that it could be of.
    members_of: dict[int, Sequence[int]] = {0: range(len(parts))}
    if len(groups) > 1:
        members_of = {key: run.places(group.ranks) for key, group in groups.items()}
        members_of |= {key: group.members for key, group in memberships.items()}
    for key, members in members_of.items():
        unsure = [clocks[who].uncertainty_ns for who in members]
        yield Party(
            key,
            tuple(members),
            tuple(reached[who].rank for who in members),
            tuple(parts[who].of_group(key) if key else parts[who] for who in members),
            all(reached[who].complete for who in members),
            np.array([clocks[who].offset_ns for who in members], np.int64),
            max((np.inf if value is None else value / 1e6 for value in unsure), default=np.inf),
        )


def from_root(begun: Int64, ended: Int64) -> tuple[Float64, int]:
    """What calls from a root take the others, and which member that is: [calls, members] in ms.

    That is a receiver's end less the later of its own begin and the root's: before that one waited for the other. No
    record names the root; it is the one that spends least time in the calls.
    """
    root = int((ended - begun).sum(axis=0).argmin())
    return np.maximum(0, ended - np.maximum(begun, begun[:, root, None])) / 1e6, root


def typical_waits(every: Sequence[Party]) -> dict[tuple[int, bytes, int], float]:
    """The median wait for the last rank in the calls of an operation, in ms, by rank, name and group.

    Only of operations that end nowhere before all have begun them, where every rank has a record of each call and the
    clocks are known well enough.
    """
    found = {}
    for party, name in [(party, name) for party in every for name in MEETING]:
        rows = party.rows(name) if party.complete and len(party.members) > 1 else None
        if rows is None:
            continue
        begun, ended = party.times(rows)
        last = begun.max(axis=1)
        # Nobody can leave before the last one has come: these are not the same calls, or the clocks are wrong.
        if (ended < last[:, None]).any():
            continue
        waits = (last[:, None] - begun) / 1e6
        if party.error_ms <= HEALTHY_SHARE * float(np.median(waits.max(axis=1))):
            for rank, typical in zip(party.ranks, np.median(waits, axis=0).tolist(), strict=True):
                found[rank, name, party.group] = typical
    return found
