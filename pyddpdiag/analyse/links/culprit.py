"""Where bad links meet, and how a report names that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyddpdiag.model import LinkStats


@dataclass(frozen=True)
class Culprit:
    """Where the bad links meet: a host, named by a rank on it; or the ends of one link; or nowhere (both None)."""

    rank: int | None
    peer: int | None
    ranks: tuple[int, ...] = ()

    @property
    def is_host(self) -> bool:
        """Whether one host is named, and not a link."""
        return self.rank is not None and self.peer is None

    def verb(self, one: str, several: str) -> str:
        """What it does: `several` is said of links that have nothing in common."""
        return several if self.rank is None else one


def named(culprit: Culprit, bad: Sequence[LinkStats]) -> str:
    """Where the bad links are, in words."""
    if culprit.is_host:
        ranks = ", ".join(map(str, culprit.ranks))
        return f"the host of rank {ranks}"
    if culprit.rank is None:
        return f"{len(bad)} links between hosts"
    worst = bad[0]
    both = any((link.peer, link.rank) == (worst.rank, worst.peer) for link in bad)
    over = f" over {worst.interface}" if worst.interface else ""
    if both:
        return f"the link between rank {worst.rank} and rank {worst.peer}{over}"
    return f"the link from rank {worst.rank} to rank {worst.peer}{over}"
