"""What a rank reports to its starter: plain data, for a pipe or directly for a listener."""

from __future__ import annotations

from dataclasses import dataclass

from pyddpdiag.ranks.failure import Failure


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
