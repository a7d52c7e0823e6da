"""The machines of a run that each launch their own ranks (`--multiprocessing-distributed`)."""

from __future__ import annotations

from dataclasses import dataclass

from pyddpdiag.train.rendezvous import Place


@dataclass(frozen=True)
class Node:
    """One machine among others.

    Attributes:
        place: of the machine, counted as a rank among machines: where it meets the others.
        nproc: ranks on each machine; the same everywhere.
    """

    place: Place
    nproc: int

    @property
    def world_size(self) -> int:
        """Ranks of all machines."""
        return self.place.world_size * self.nproc

    def places(self) -> list[Place]:
        """The places of this machine's ranks."""
        first = self.place.rank * self.nproc
        return [
            Place(first + local, self.world_size, self.nproc, self.place.target)
            for local in range(self.nproc)
        ]
