"""The state of the ranks' processes while their traces are read: running, stopped, dead, or out of sight."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import psutil

from pyddpdiag.model.now import Now, ProcessStatus, RankNow
from pyddpdiag.system import processes
from pyddpdiag.system.clock import clock_identity, linux_identity, monotonic_ns
from pyddpdiag.system.processes import START_TOLERANCE_S, Process
from pyddpdiag.trace.header import Header

if TYPE_CHECKING:
    from pyddpdiag.trace.reader import RankTrace
    from pyddpdiag.trace.run import Run

_SECOND_NS: Final = 1_000_000_000


def is_own_clock(header: Header) -> bool:
    """Whether the times in a trace are from this machine's monotonic clock, since its last boot."""
    identity = clock_identity()
    return (
        identity != ""
        and header.clock_identity == identity
        and header.clock_name != ""
        and header.clock_name in time.get_clock_info("perf_counter").implementation
        # On Windows the identity names the machine and not the boot, and the counter restarts with each boot.
        and (linux_identity() != "" or header.wall_ns >= psutil.boot_time() * _SECOND_NS)
        and header.monotonic_ns <= monotonic_ns()
    )


FRESH_MS: Final = 5_000.0
"""Ten heartbeats: a process whose last one is no older runs."""

FRESH_ELSEWHERE_MS: Final = 60_000.0
"""The same for another machine: wall clocks differ, and a network's file system passes on what was written late."""


@dataclass(frozen=True)
class Glance:
    """What was seen of a trace's process before its records were read, at `wall_s` and `reader_ns`.

    Before, so that a process which is gone has written its last record: a run that closes properly while it
    is read must not look killed.
    """

    reader_ns: int
    wall_s: float
    process: Process | None


def glance(header: Header) -> Glance | None:
    """Look for the process that writes a trace; None if its clock is not this machine's: it runs
    elsewhere."""
    if not is_own_clock(header):
        return None
    return Glance(monotonic_ns(), time.time(), processes.find(header.pid))


def observe(run: Run, *, fresh_elsewhere_ms: float = FRESH_ELSEWHERE_MS) -> Now:
    """The state of each rank when its trace was read.

    `fresh_elsewhere_ms`: a process on another machine runs if its last heartbeat is no older.
    """
    glances = [trace.glance for trace in run.ranks if trace.glance is not None]
    over = frozenset(note.node for note in run.nodes.notes if note.exit_code is not None)
    return Now(
        reader_ns=max((seen.reader_ns for seen in glances), default=monotonic_ns()),
        ranks=tuple(_rank_now(trace, fresh_elsewhere_ms, over) for trace in run.ranks),
    )


def _rank_now(trace: RankTrace, fresh_elsewhere_ms: float, over: Collection[str]) -> RankNow:
    """One rank's state; `over`: the nodes whose command has ended, which leaves no rank of it behind."""
    found = _seen_now(trace, fresh_elsewhere_ms)
    launch = trace.sidecar.launch
    if found.status == "unknown" and launch is not None and launch.node in over:
        return replace(found, status="dead")
    return found


def _seen_now(trace: RankTrace, fresh_elsewhere_ms: float) -> RankNow:
    seen, beat_age_ms = trace.glance, _beat_age_ms(trace)
    if seen is not None:
        status = _status(trace, seen)
        if status == "unknown" and is_fresh(beat_age_ms, FRESH_MS):
            status = "running"
        return RankNow(trace.rank, status, _silent_ms(trace, seen.reader_ns), seen.reader_ns, beat_age_ms)
    if not is_fresh(beat_age_ms, fresh_elsewhere_ms):
        return RankNow(trace.rank, "unknown", beat_age_ms=beat_age_ms)
    # Its own clock tells until when it lived at least.
    until = trace.header.heartbeat_ns
    return RankNow(trace.rank, "running", _silent_ms(trace, until), until, beat_age_ms)


def is_fresh(beat_age_ms: float | None, threshold_ms: float) -> bool:
    """Whether a heartbeat is so young that its process must run; it may seem to come from the future."""
    return beat_age_ms is not None and abs(beat_age_ms) <= threshold_ms


def _silent_ms(trace: RankTrace, until_ns: int) -> float | None:
    return max(0, until_ns - trace.newest_ns) / 1e6 if trace.newest_ns else None


def _beat_age_ms(trace: RankTrace) -> float | None:
    header = trace.header
    if not header.heartbeat_ns or header.closed:
        return None
    if trace.glance is not None:
        return max(0, trace.glance.reader_ns - header.heartbeat_ns) / 1e6
    return (time.time_ns() - header.wall_ns - (header.heartbeat_ns - header.monotonic_ns)) / 1e6


def _status(trace: RankTrace, seen: Glance) -> ProcessStatus:
    if not _is_in_sight(trace):
        return "unknown"
    if seen.process is None or not _is_writer(trace, seen, seen.process):
        return "dead"
    return "stopped" if seen.process.stopped else "running"


def _is_in_sight(trace: RankTrace) -> bool:
    """Whether a pid of the trace means the same to the reader: both see the same processes."""
    sidecar = trace.sidecar
    if sidecar.process_namespace is not None:
        return sidecar.process_namespace == processes.namespace()
    # Older recorders did not write it. A container usually has its own host name.
    return sidecar.host == socket.gethostname()


def _is_writer(trace: RankTrace, seen: Glance, process: Process) -> bool:
    """Whether the process with the pid is the one that began the trace, and not a later one."""
    if process.started_s is None:
        return True
    if trace.sidecar.process_started_s is not None:
        return abs(process.started_s - trace.sidecar.process_started_s) <= START_TOLERANCE_S
    opened_s = seen.wall_s - (seen.reader_ns - trace.header.monotonic_ns) / 1e9
    return process.started_s <= opened_s + START_TOLERANCE_S
