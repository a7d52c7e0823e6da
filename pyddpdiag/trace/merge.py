"""Pair the bucket records of all ranks by (group, sequence).

Each rank is added to the ledgers of its groups and can then be forgotten: a pair needs only extremes and
counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyddpdiag.trace.header import Header
from pyddpdiag.trace.ledger import Ledger
from pyddpdiag.trace.run import Run


@dataclass(frozen=True)
class Membership:
    """Which ranks (positions in the run) of a group have a trace, and how many ranks the group has."""

    members: tuple[int, ...]
    size: int

    @property
    def expected(self) -> int:
        """How many ranks should have a record of each of its all-reduces."""
        return len(self.members)


class Merged:
    """The all-reduces of all groups of a run. Times stay on each rank's own clock; see `clock.align`.

    `clock_of` is the number of each rank's clock. `repeated` records were left out: the same rank recorded
    the same all-reduce twice.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.clock_of: list[int] = []
        self._clocks: dict[str, int] = {}
        self._ledgers: dict[int, Ledger] = {}

    @property
    def clocks(self) -> int:
        """How many different clocks the ranks have."""
        return len(self._clocks)

    def rank(self, header: Header) -> tuple[int, int]:
        """Take up the next rank of the run; its position and the number of its clock."""
        name = header.clock_identity or f"rank {header.rank}"
        self.clock_of.append(self._clocks.setdefault(name, len(self._clocks)))
        return len(self.clock_of) - 1, self.clock_of[-1]

    def ledger(self, group: int) -> Ledger:
        """The all-reduces of a group."""
        return self._ledgers.setdefault(group, Ledger())

    def groups(self) -> list[tuple[int, Ledger]]:
        """All groups that were seen, by id."""
        return sorted(self._ledgers.items())

    def __len__(self) -> int:
        """Number of all-reduces."""
        return sum(map(len, self._ledgers.values()))


def memberships(run: Run, merged: Merged) -> dict[int, Membership]:
    """The members of each group that was seen: as the sidecars say, and those seen in it."""
    groups = run.groups()
    everyone = tuple(range(len(run.ranks)))
    found = {}
    for key, ledger in merged.groups():
        group = groups.get(key)
        if group is None:
            # Nothing is known about the group: assume all ranks if all were seen in it, else those that were.
            world = len(ledger.shares) == len(run.ranks) or key == 0
            members = everyone if world else tuple(sorted(ledger.shares))
            found[key] = Membership(members, run.world_size if world else len(members))
        else:
            members = tuple(sorted({*run.places(group.ranks), *ledger.shares}))
            found[key] = Membership(members, max(len(set(group.ranks)), len(members)))
    return found
