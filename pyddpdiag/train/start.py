"""Starts a training: checks its inputs, prepares the trace's folder, and has ranks started or joined."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyddpdiag.ranks.join import join as join_ranks
from pyddpdiag.ranks.launch import Node
from pyddpdiag.ranks.launch import launch as launch_ranks
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.ranks.session import Event as RankEvent
from pyddpdiag.ranks.session import JobMessage, Options
from pyddpdiag.ranks.session import Session as RankSession
from pyddpdiag.train import traces
from pyddpdiag.train.events import TrainResult
from pyddpdiag.train.inputs import check_inputs
from pyddpdiag.train.settings import TrainSettings

if TYPE_CHECKING:
    from pyddpdiag.train.rank_session import Session

# More than any world has: every rank from some number on.
_NO_END = 2**31


def launch(
    settings: TrainSettings,
    nproc: int,
    *,
    on_event: Callable[[object], None] = lambda _: None,
    job: Callable[[Session], TrainResult] | None = None,
    machine: Place | None = None,
) -> TrainResult:
    """Trains with `nproc` ranks on this machine and returns the first one's result. No process outlives the call.

    Args:
        settings: of the run.
        nproc: number of ranks.
        on_event: called in this thread with every event of every rank (`pyddpdiag.ranks.session`), and with what the
            training tells (`pyddpdiag.train.events`).
        job: a picklable function to run on each rank instead of `loop.train_rank`.
        machine: this machine's place among several that each launch `nproc` ranks; None: all ranks are here.

    Raises:
        UsageError, DataError, CheckpointError, TraceExistsError, TraceFolderError: before anything is started.
        RankFailedError: a rank failed or died; all others have been ended.
        KeyboardInterrupt, SystemExit: this process was asked to stop; all ranks have been ended.
    """
    node = Node(nproc, machine)
    settings.check_world(node.world_size)
    if job is None:
        check_inputs(settings)
    return launch_ranks(
        partial(_train, settings, job),
        _options(settings),
        node,
        prepare=lambda: _folder_of_node(settings, node),
        on_event=_unpacked(on_event),
    )


def join(
    settings: TrainSettings,
    place: Place,
    *,
    on_event: Callable[[object], None] = lambda _: None,
    job: Callable[[Session], TrainResult] | None = None,
) -> TrainResult:
    """Trains as one rank among others that are started elsewhere, and returns the result.

    What is left behind when this raises, and what Ctrl-C does: see `pyddpdiag.ranks.join`.

    Raises:
        RendezvousError: the ranks did not find together.
        RankFailedError: this rank failed, by itself or because another rank did.
        UsageError, DataError, CheckpointError, TraceExistsError, TraceFolderError: this rank cannot start; the others
            have been told.
    """

    def prepare() -> str | None:
        settings.check_world(place.world_size)
        if job is None:
            check_inputs(settings, checkpoint=place.rank == 0)
        return _folder_of_rank(settings, place)

    return join_ranks(
        partial(_train, settings, job),
        _options(settings),
        place,
        prepare=prepare,
        on_event=_unpacked(on_event),
    )


def _train(
    settings: TrainSettings, own: Callable[[Session], TrainResult] | None, rank: RankSession
) -> TrainResult:
    """Trains on one rank with the built-in loop, or with `own` if given."""
    # The process that starts the ranks does without torch.
    from pyddpdiag.train.loop import train_rank
    from pyddpdiag.train.rank_session import Session

    return (own or train_rank)(Session(settings, rank.place, rank.payload, rank.tell))


def _options(settings: TrainSettings) -> Options:
    return Options(settings.timeout_s, settings.interfaces, settings.shared())


def _unpacked(on_event: Callable[[object], None]) -> Callable[[RankEvent], None]:
    """Passes on a training's own events instead of their envelopes."""
    return lambda event: on_event(event.what if isinstance(event, JobMessage) else event)


def _folder_of_node(settings: TrainSettings, node: Node) -> str | None:
    """Without a name, all ranks use the folder of rank 0's machine, whose ranks send it to the others."""
    if not settings.hook.records or (settings.trace is None and 0 not in node.ranks):
        return None
    folder = Path(settings.trace) if settings.trace is not None else traces.default_folder()
    # Whatever ranks an earlier run had there: two runs in one folder cannot be distinguished later. Rank 0's
    # machine also handles ranks that this world does not have.
    traces.prepare(folder, force=settings.force, mine=node.ranks)
    if 0 in node.ranks:
        traces.prepare(folder, force=settings.force, mine=range(node.world_size, _NO_END))
    return str(folder)


def _folder_of_rank(settings: TrainSettings, place: Place) -> str | None:
    """Each rank handles its own file, rank 0 also those of ranks that this world does not have."""
    if not settings.hook.records:
        return None
    if settings.trace is None:
        return str(traces.default_folder()) if place.rank == 0 else None
    folder = Path(settings.trace)
    traces.prepare(folder, force=settings.force, mine=range(place.rank, place.rank + 1))
    if place.rank == 0:
        traces.prepare(folder, force=settings.force, mine=range(place.world_size, _NO_END))
    return str(folder)
