"""The argument of a job, once the process group of its rank is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyddpdiag.ranks.events import Event, JobMessage
from pyddpdiag.ranks.rendezvous import Place


@dataclass(frozen=True)
class Session:
    """One rank's part of a job.

    Attributes:
        place: of this rank.
        payload: what rank 0's `prepare` returned, the same on all ranks; None for nothing.
        send: passes an event to the starter of this rank.
    """

    place: Place
    payload: str | None
    send: Callable[[Event], None]

    def tell(self, what: object) -> None:
        """Sends the job's own message; it must be picklable."""
        self.send(JobMessage(self.place.rank, what))
