"""One rank from its start to its end, whoever started it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyddpdiag.train import interfaces
from pyddpdiag.train.deadline import Deadline
from pyddpdiag.train.events import Event, Joined, TrainResult
from pyddpdiag.train.failure import Failure, describe, sentence
from pyddpdiag.train.meeting import introduce
from pyddpdiag.train.rendezvous import FileTarget, Place, TcpTarget
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.train.stale import tidy

# Every wait at the start ends by itself in time, unless native code is stuck; then this much later we end it.
_START_SLACK_S = 10.0
# A victim that serves the store stays this long, so that other victims can read the reason in it as well.
_LINGER_S = 1.0


@dataclass(frozen=True)
class Assignment:
    """What a rank is told to do.

    Attributes:
        place: its rank, the world, and where to meet.
        settings: of the run.
        trace: the trace's folder as rank 0 shall decide it; None for no trace.
        interface: value for GLOO_SOCKET_IFNAME, "" to leave it unset.
        problem: why this rank cannot start; it then only tells the others.
        fresh_file: the rendezvous file was made for this run.
    """

    place: Place
    settings: TrainSettings
    trace: str | None
    interface: str
    problem: str = ""
    fresh_file: bool = False


def run_rank(
    assignment: Assignment,
    tell: Callable[[Event], None],
    job: Callable[..., TrainResult] | None = None,
    explain: Callable[[Failure, str], None] | None = None,
) -> TrainResult:
    """Joins the process group, does `job` (default: `loop.train_rank`) and leaves the group.

    Args:
        assignment: see there.
        tell: takes this rank's events.
        job: called with a `loop.Session`.
        explain: told of a failure within the job before it is raised: the failure, and the sentence that an
            earlier failing rank left in the store ("" if none).
    """
    place = assignment.place
    if assignment.interface:
        os.environ[interfaces.VARIABLE] = assignment.interface
    result = _in_group(assignment, tell, job, explain)
    if isinstance(place.target, FileTarget) and place.rank == 0 and not assignment.fresh_file:
        tidy(Path(place.target.path))
    return result


def _in_group(
    assignment: Assignment,
    tell: Callable[[Event], None],
    job: Callable[..., TrainResult] | None,
    explain: Callable[[Failure, str], None] | None,
) -> TrainResult:
    # Imported here: loading torch takes seconds, in which the caller watches over its parent and Ctrl-C
    # already.
    from pyddpdiag.train.group import process_group
    from pyddpdiag.train.loop import Session, train_rank

    place, settings = assignment.place, assignment.settings
    doing = ["starting"]

    def expired() -> None:
        tell(_stuck(place, doing[-1], settings.timeout_s))
        os._exit(2)

    with ExitStack() as stack:
        with Deadline(settings.timeout_s + _START_SLACK_S, expired):
            mine = introduce(place, settings, assignment.trace, assignment.problem)
            group = stack.enter_context(
                process_group(
                    place, mine, settings.timeout_s, fresh_file=assignment.fresh_file, phase=doing.append
                )
            )
        tell(Joined(place.rank))
        session = Session(settings, place, group.hellos[0].trace, tell)
        try:
            return (job or train_rank)(session)
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
