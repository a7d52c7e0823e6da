"""One rank in this very process, for worlds that torchrun or the user started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyddpdiag.errors import PyddpdiagError, RankFailedError
from pyddpdiag.train import interfaces, interrupts, traces
from pyddpdiag.train.events import Event, TrainResult
from pyddpdiag.train.failure import Failure, describe, sentence, short
from pyddpdiag.train.inputs import check_inputs
from pyddpdiag.train.rank import Assignment, run_rank
from pyddpdiag.train.rendezvous import Place
from pyddpdiag.train.settings import TrainSettings


def join(
    settings: TrainSettings,
    place: Place,
    *,
    on_event: Callable[[Event], None] = lambda _: None,
    job: Callable[..., TrainResult] | None = None,
) -> TrainResult:
    """Trains as one rank among others that are started elsewhere, and returns the result.

    A process group is left behind when this raises, with native threads that may wait for ranks that are
    gone: the caller is expected to end the process soon. Ctrl-C ends it at once with exit code 130, also
    inside Gloo.

    Raises:
        RendezvousError: the ranks did not find together.
        RankFailedError: this rank failed, by itself or because another one did.
        UsageError, TraceExistsError, TraceFolderError: this rank cannot start; the others have been told.
    """
    interface, problem, trace = "", None, None
    try:
        interface, _ = interfaces.choose(settings.interfaces, local=False)
        settings.check_world(place.world_size)
        if job is None:
            check_inputs(settings if place.rank == 0 else replace(settings, resume=None, evaluate=False))
        trace = _prepare_trace(settings, place)
    except PyddpdiagError as error:
        # The others would wait for us in vain, so meet them once more to say why.
        problem = error
    reasons: dict[str, str] = {}

    def explain(failure: Failure, reason: str) -> None:
        reasons[failure.message] = reason

    def tell(event: Event) -> None:
        on_event(event)
        if isinstance(event, Failure):  # the process ends right after this: nobody else will say it
            sys.stderr.write(f"error: {sentence(event)}\n  hint: {event.hint}\n")
            sys.stderr.flush()

    assignment = Assignment(place, settings, trace, interface, problem=problem.message if problem else "")
    with interrupts.exit_at_once(f"Interrupted: rank {place.rank} ends."):
        try:
            return run_rank(assignment, tell, job, explain)
        except PyddpdiagError as error:
            raise problem or error from None
        except Exception as error:
            failure = describe(error, place.rank)
            raise _failed(failure, reasons.get(failure.message, "")) from error


def _prepare_trace(settings: TrainSettings, place: Place) -> str | None:
    """Each rank answers for its own file, rank 0 also for those of ranks that this world does not have."""
    if not settings.hook.records:
        return None
    if settings.trace is None:
        return str(traces.default_folder()) if place.rank == 0 else None
    folder = Path(settings.trace)
    traces.prepare(folder, force=settings.force, mine=range(place.rank, place.rank + 1))
    if place.rank == 0:
        traces.prepare(folder, force=settings.force, mine=range(place.world_size, 2**31))
    return str(folder)


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
        message = f"rank {failure.rank} waited for another rank in vain: {short(failure.message)}"
        hint = "a rank that shows no error in its output is the one that is stuck."
    else:
        message = f"rank {failure.rank} lost another rank: {short(failure.message)}"
        hint = "see the output of the other ranks; one that was killed cannot say so itself."
    return RankFailedError(message, rank=failure.rank, details=failure.traceback, hint=hint)
