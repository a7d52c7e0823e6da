"""Collectives other than buckets, call by call over the ranks that meet in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import CLOCK_SHARE, SEVERAL
from pyddpdiag.analyse.calls.collectives import MEETING, RankCollectives, whole_calls
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.progress import Progress
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.merge import Membership
from pyddpdiag.trace.run import Run


@dataclass(frozen=True, eq=False)
class Party:
    """Ranks that call the same collectives: `members` are places in the run, `parts` what each recorded of them.

    `group` is the process group's id; 0: the run has only one.
    """

    group: int
    members: tuple[int, ...]
    parts: tuple[RankCollectives, ...]


def parties(
    run: Run, parts: Sequence[RankCollectives], memberships: Mapping[int, Membership]
) -> Iterator[Party]:
    """The ranks of each process group that is known by its collectives; all ranks where there is a single group.

    Args:
        run: whose sidecars tell the groups.
        parts: of each rank.
        memberships: the groups that reduced buckets.
    """
    groups = run.groups()
    if len(groups) <= 1:
        # A collective before the first bucket names no group, and there is no other that it could be of.
        yield Party(0, tuple(range(len(parts))), tuple(parts))
        return
    members_of = {key: run.places(group.ranks) for key, group in groups.items()}
    members_of |= {key: group.members for key, group in memberships.items()}
    for key, members in members_of.items():
        yield Party(key, members, tuple(parts[who].of_group(key) for who in members))


def waits(
    party: Party, reached: Sequence[Progress], clocks: Sequence[ClockOffset]
) -> Iterator[tuple[bytes, Float64]]:
    """How long each member waited in each call for the one that came last: by name, [calls, members] in ms.

    Only of operations that end nowhere before all have begun them, where every rank has a record of each call and the
    clocks are known well enough.
    """
    if len(party.members) < 2 or not all(reached[who].complete for who in party.members):
        return
    unsure = [clocks[who].uncertainty_ns for who in party.members]
    error_ms = max(np.inf if value is None else value / 1e6 for value in unsure)
    offsets = np.array([clocks[who].offset_ns for who in party.members])
    for name in MEETING:
        calls = [whole_calls(part, name) for part in party.parts]
        if len({len(begun) for begun, _ in calls}) != 1 or len(calls[0][0]) < SEVERAL:
            continue
        begun, ended = (np.stack(columns, axis=1) + offsets for columns in zip(*calls, strict=True))
        last = begun.max(axis=1)
        # Nobody can leave before the last one has come: these are not the same calls, or the clocks are wrong.
        if (ended < last[:, None]).any():
            continue
        found = (last[:, None] - begun) / 1e6
        if error_ms <= CLOCK_SHARE * float(np.median(found.max(axis=1))):
            yield name, found


def typical_waits(
    every: Sequence[Party], reached: Sequence[Progress], clocks: Sequence[ClockOffset]
) -> dict[tuple[int, bytes, int], float]:
    """The median wait for the last rank, in ms, by place of the rank, name and group."""
    found = {}
    for party in every:
        for name, each in waits(party, reached, clocks):
            for column, who in enumerate(party.members):
                found[who, name, party.group] = float(np.median(each[:, column]))
    return found
