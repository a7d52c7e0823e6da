"""The part of a world that one machine launches: all of its ranks, or those of one machine among several."""

from __future__ import annotations

from dataclasses import dataclass

from pyddpdiag.errors import UsageError
from pyddpdiag.ranks.rendezvous import Place, Target


@dataclass(frozen=True)
class Node:
    """This machine.

    Attributes:
        nproc: ranks on each machine; the same everywhere.
        place: of the machine, counted as a rank among machines: where its ranks meet those of the others. None: all
            ranks are here, and meet where `launch` says.

    Raises:
        UsageError: it is to launch no rank.
    """

    nproc: int
    place: Place | None = None

    def __post_init__(self) -> None:
        if self.nproc < 1:
            raise UsageError(f"--nproc is {self.nproc}, but at least 1 rank is needed.")

    @property
    def world_size(self) -> int:
        """Ranks of all machines."""
        return self.nproc * (1 if self.place is None else self.place.world_size)

    @property
    def alone(self) -> bool:
        """Whether all ranks are on this machine."""
        return self.world_size == self.nproc

    @property
    def ranks(self) -> range:
        """This machine's ranks."""
        first = 0 if self.place is None else self.place.rank * self.nproc
        return range(first, first + self.nproc)

    def places(self, target: Target) -> list[Place]:
        """The places of this machine's ranks, which meet at `target` unless the machine has a place."""
        where = target if self.place is None else self.place.target
        return [Place(rank, self.world_size, self.nproc, where) for rank in self.ranks]
