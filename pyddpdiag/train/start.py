"""Starts a training: checks its inputs, prepares the trace's folder, and has ranks started or joined."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyddpdiag.errors import TraceExistsError, TraceFolderError
from pyddpdiag.ranks.join import join as join_ranks
from pyddpdiag.ranks.launch import Node
from pyddpdiag.ranks.launch import launch as launch_ranks
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.ranks.session import Event as RankEvent
from pyddpdiag.ranks.session import JobMessage, Options
from pyddpdiag.ranks.session import Session as RankSession
from pyddpdiag.train.events import TrainResult
from pyddpdiag.train.inputs import check_inputs
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.train.summary import FILE

if TYPE_CHECKING:
    from pyddpdiag.train.rank_session import Session

_TRACE_FILE = re.compile(r"rank_(\d+)\.(ddptrace|json|lines)")


def default_folder(parent: Path = Path("runs")) -> Path:
    """`runs/<local time>`, with a number after it if that is taken."""
    name = time.strftime("%Y%m%d-%H%M%S")
    folder, number = parent / name, 2
    while folder.exists():
        folder, number = parent / f"{name}-{number}", number + 1
    return folder


def existing(folder: Path) -> dict[int, list[Path]]:
    """The files of traces in the folder, by rank; empty if there is no such folder."""
    found: dict[int, list[Path]] = {}
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            match = _TRACE_FILE.fullmatch(path.name)
            if match:
                found.setdefault(int(match.group(1)), []).append(path)
    return found


def prepare(folder: Path, *, force: bool, mine: range) -> None:
    """Prepares the folder for the ranks in `mine`, so that no trace of another run stays beside theirs.

    `force`: delete the traces of those ranks. `mine`: the ranks that the caller handles.

    Raises:
        TraceExistsError: there is a trace of those ranks, and `force` is not given.
        TraceFolderError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = [path for rank, paths in existing(folder).items() if rank in mine for path in paths]
        if old and not force:
            raise TraceExistsError(
                f"A trace is in {folder} already ({old[0].name}).",
                hint="choose another --trace, or add --force.",
            )
        for path in old:
            path.unlink(missing_ok=True)
        if 0 in mine:
            # Of the training that was here before.
            (folder / FILE).unlink(missing_ok=True)
    except TraceExistsError:
        raise
    except OSError as error:
        raise TraceFolderError(
            f"The trace's folder {folder} cannot be used: {error.strerror or error}.",
            hint="choose another --trace.",
        ) from error


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
        on_event: called in this thread with every event of every rank (`pyddpdiag.ranks.session`), and with what
            the training tells (`pyddpdiag.train.events`).
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
    folder = Path(settings.trace) if settings.trace is not None else default_folder()
    # Whatever ranks an earlier run had there: two runs in one folder cannot be distinguished later. Rank 0's
    # machine also handles ranks that this world does not have.
    prepare(folder, force=settings.force, mine=node.ranks)
    if 0 in node.ranks:
        prepare(folder, force=settings.force, mine=range(node.world_size, _NO_END))
    return str(folder)


def _folder_of_rank(settings: TrainSettings, place: Place) -> str | None:
    """Each rank handles its own file, rank 0 also those of ranks that this world does not have."""
    if not settings.hook.records:
        return None
    if settings.trace is None:
        return str(default_folder()) if place.rank == 0 else None
    folder = Path(settings.trace)
    prepare(folder, force=settings.force, mine=range(place.rank, place.rank + 1))
    if place.rank == 0:
        prepare(folder, force=settings.force, mine=range(place.world_size, _NO_END))
    return str(folder)
