"""One rank from its start to its end, whoever started it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.failure import Failure, describe, sentence
from pyddpdiag.ranks.interrupts import deadline
from pyddpdiag.ranks.meeting import introduce
from pyddpdiag.ranks.rendezvous import FileTarget, Place, TcpTarget
from pyddpdiag.ranks.session import Event, Joined, Options, Session
from pyddpdiag.ranks.stale import tidy

T = TypeVar("T")

# Every wait at the start ends in time by itself, unless native code is stuck; then we end it this much later.
_START_SLACK_S = 10.0
# A victim that serves the store stays this long, so that other victims can read the reason in it, too.
_LINGER_S = 1.0


@dataclass(frozen=True)
class Assignment:
    """What a rank receives from its starter, beside its job.

    Attributes:
        place: its rank, the world, and where to meet.
        options: of the start.
        interface: value for GLOO_SOCKET_IFNAME, "" to leave it unset.
        payload: its own payload; that of rank 0 is used by all ranks.
        problem: why this rank cannot start; it then only informs the others. "" if it can.
        fresh_file: the rendezvous file was made for these ranks.
    """

    place: Place
    options: Options
    interface: str
    payload: str | None = None
    problem: str = ""
    fresh_file: bool = False


def run_rank(
    assignment: Assignment,
    job: Callable[[Session], T],
    send: Callable[[Event], None],
    explain: Callable[[Failure, str], None] | None = None,
) -> T:
    """Joins the process group, does the job and leaves the group.

    Args:
        job: called with the process group up.
        send: takes this rank's events.
        explain: called when the job fails, before the error is raised, with the failure and the sentence that an
            earlier failing rank left in the store ("" if none).

    Raises:
        RendezvousError: the ranks do not find together.
        Exception: whatever the job raises.
    """
    place = assignment.place
    if assignment.interface:
        os.environ[interfaces.VARIABLE] = assignment.interface
    result = _in_group(assignment, job, send, explain)
    if isinstance(place.target, FileTarget) and place.rank == 0 and not assignment.fresh_file:
        tidy(Path(place.target.path))
    return result


def _in_group(
    assignment: Assignment,
    job: Callable[[Session], T],
    send: Callable[[Event], None],
    explain: Callable[[Failure, str], None] | None,
) -> T:
    # Imported here: loading torch takes seconds, and the caller must watch its parent and Ctrl-C before that.
    from pyddpdiag.ranks.group import process_group

    place, timeout_s = assignment.place, assignment.options.timeout_s
    doing = ["starting"]

    def expired() -> None:
        send(_stuck(place, doing[-1], timeout_s))
        os._exit(2)

    with ExitStack() as stack:
        with deadline(timeout_s + _START_SLACK_S, expired):
            mine = introduce(place, assignment.options.settings, assignment.payload, assignment.problem)
            group = stack.enter_context(
                process_group(place, mine, timeout_s, fresh_file=assignment.fresh_file, phase=doing.append)
            )
        send(Joined(place.rank))
        try:
            return job(Session(place, group.hellos[0].payload, send))
        except Exception as error:
            failure = describe(error, place.rank)
            if not failure.secondary:
                group.tell_failure(sentence(failure))
            if explain is not None:
                explain(failure, group.wait_for_reason() if failure.secondary else "")
            if failure.secondary and place.rank == 0 and isinstance(place.target, TcpTarget):
                time.sleep(_LINGER_S)
            raise


def _stuck(place: Place, doing: str, timeout_s: float) -> Failure:
    if doing.startswith("opening") and isinstance(place.target, FileTarget):
        hint = "a process may hold a lock on the file, or its network drive does not answer: use another."
    elif doing.startswith("connecting"):
        hint = (
            "check --interface and that this machine's name resolves to an address the other ranks can reach."
        )
    else:
        hint = "check that host and port are rank 0's, and that no other program listens there."
    return Failure(
        rank=place.rank,
        kind="RendezvousError",
        message=f"stuck in {doing}, past the timeout of {timeout_s:g} s.",
        timeout=doing.startswith("connecting"),
        hint=hint,
    )
