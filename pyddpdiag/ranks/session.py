"""How ranks are started, what a job is called with once its process group is up, and what it reports: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyddpdiag.ranks.failure import Failure
from pyddpdiag.ranks.rendezvous import Place


@dataclass(frozen=True)
class Joined:
    """The rank's process group is up."""

    rank: int


@dataclass(frozen=True)
class Located:
    """Where a rank is, on request: the stacks of its Python threads as text."""

    rank: int
    stacks: str


@dataclass(frozen=True)
class Finished:
    """The rank's job is done; `result` is what it returned."""

    rank: int
    result: object


@dataclass(frozen=True)
class JobMessage:
    """Opaque message from a job to its starter."""

    rank: int
    what: object


@dataclass(frozen=True)
class Note:
    """A sentence for the user that does not end anything; several ranks may send the same one."""

    text: str


Event = Joined | Located | Finished | JobMessage | Note | Failure


@dataclass(frozen=True)
class Options:
    """The same options serve launched ranks and a rank that joins others.

    Attributes:
        timeout_s: longest wait for the other ranks, at the start and in every collective, in seconds.
        interfaces: network interfaces for Gloo; empty leaves the choice to `interfaces.choose`.
        settings: what all ranks must agree on, by the name that a user knows it by. Ranks that differ refuse to
            start and name the first difference.
    """

    timeout_s: float = 300.0
    interfaces: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


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
