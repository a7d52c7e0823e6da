"""Makes this process itself one rank, in worlds that torchrun or the user started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from pyddpdiag._loader import require_torch
from pyddpdiag.errors import PyddpdiagError, RankFailedError
from pyddpdiag.output import say
from pyddpdiag.ranks import interfaces, interrupts
from pyddpdiag.ranks.failure import Failure, describe, sentence, short
from pyddpdiag.ranks.lifetime import Assignment, run_rank
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.ranks.session import Event, Options, Session

T = TypeVar("T")


def join(
    job: Callable[[Session], T],
    options: Options,
    place: Place,
    *,
    prepare: Callable[[], str | None] = lambda: None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> T:
    """Runs a job as one rank among others that are started elsewhere, and returns its result.

    When this raises, it leaves a process group behind, with native threads that may wait for ranks that are
    gone: the caller is expected to end the process soon. Ctrl-C ends it at once with exit code 130, also
    inside Gloo.

    Args:
        job: called with the process group up.
        options: see there.
        prepare: called before the ranks meet. Its result on rank 0 is every rank's `Session.payload`; an error of
            this project is sent to the others, then raised.
        on_event: called with this rank's events, from any thread.

    Raises:
        NativeModuleError: torch is not installed.
        RendezvousError: the ranks did not find together.
        RankFailedError: this rank failed, by itself or because another rank did.
        PyddpdiagError: this rank cannot start; the others have been informed.
    """
    require_torch()  # without it, we cannot even meet the others to say so
    interface, payload, problem = "", None, None
    try:
        interface, _ = interfaces.choose(options.interfaces, local=False)
        payload = prepare()
    except PyddpdiagError as error:
        # The others would wait for us in vain, so meet them once more to report why.
        problem = error
    reasons: dict[str, str] = {}

    def explain(failure: Failure, reason: str) -> None:
        reasons[failure.message] = reason

    def send(event: Event) -> None:
        on_event(event)
        if isinstance(event, Failure):  # the process ends right after this: nobody else will report it
            say(f"error: {sentence(event)}\n  hint: {event.hint}", sys.stderr)
            sys.stderr.flush()

    assignment = Assignment(place, options, interface, payload, problem=problem.message if problem else "")
    with interrupts.exit_at_once(f"Interrupted: rank {place.rank} ends."):
        try:
            return run_rank(assignment, job, send, explain)
        except PyddpdiagError as error:
            raise problem or error from None
        except Exception as error:
            failure = describe(error, place.rank)
            raise _failed(failure, reasons.get(failure.message, "")) from error


def _failed(failure: Failure, reason: str) -> RankFailedError:
    if not failure.secondary:
        return RankFailedError(
            sentence(failure), rank=failure.rank, details=failure.traceback, hint=failure.hint
        )
    if reason:
        return RankFailedError(
            f"{reason}\n  rank {failure.rank} went down with it: {short(failure.message, 100)}"
        )
    if failure.timeout:
        happened = f"rank {failure.rank} waited in vain for another rank"
        hint = "a rank that shows no error in its output is the one that is stuck."
    else:
        happened = f"rank {failure.rank} lost another rank"
        hint = "see the output of the other ranks; one that was killed cannot say so itself."
    message = f"{happened}; which one is unknown: {short(failure.message, 100)}"
    return RankFailedError(message, details=failure.traceback, hint=hint)
