"""The state of a run's ranks when the reader looked at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProcessStatus = Literal["running", "stopped", "dead", "unknown"]

ProcessEnd = Literal["orderly", "exception"]
"""How a process itself said that it ended: normally, or by an exception that nobody caught."""


@dataclass(frozen=True)
class RankNow:
    """One rank's process when its trace was read.

    `stopped`: it exists but is kept from running (SIGSTOP, a debugger). `dead`: it ended, or its pid now
    belongs to another process. `unknown`: it runs where this reader cannot see it, and no fresh heartbeat tells that
    it runs, or the trace was copied. `reader_ns` is that moment on the rank's monotonic clock, `silent_ms` the time
    since the rank's newest record; None where the moment is not known, `silent_ms` also where nothing was recorded.

    `beat_age_ms` is the time since the last heartbeat of its recorder; by the wall clocks where the trace's clock is
    not the reader's, so that it is off by as much as they are. None: it has none, or the trace is closed.
    """

    rank: int
    status: ProcessStatus
    silent_ms: float | None = None
    reader_ns: int | None = None
    beat_age_ms: float | None = None

    @property
    def alive(self) -> bool | None:
        """Whether the process exists; None if that is unknown."""
        return None if self.status == "unknown" else self.status != "dead"

    @property
    def lasts_until_ns(self) -> int | None:
        """Until when its operations in flight last; None: as far as is known, up to its newest record.

        A process that is gone waits for nothing, and nobody knows what a process out of sight does.
        """
        return self.reader_ns if self.alive else None


@dataclass(frozen=True)
class Now:
    """All ranks that have a trace, in the run's order; `reader_ns` is when the last of them was looked at."""

    reader_ns: int
    ranks: tuple[RankNow, ...]

    @property
    def is_live(self) -> bool:
        """Whether any of the ranks' processes is known to exist."""
        return any(rank.alive for rank in self.ranks)
