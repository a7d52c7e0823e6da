"""Launches ranks on this machine and reports the outcome of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from pyddpdiag._loader import require_torch
from pyddpdiag.ranks import interfaces, interrupts, process
from pyddpdiag.ranks.events import Event, Note
from pyddpdiag.ranks.lifetime import Assignment
from pyddpdiag.ranks.meeting_file import fresh_file
from pyddpdiag.ranks.nodes import Node
from pyddpdiag.ranks.options import Options
from pyddpdiag.ranks.rendezvous import FileTarget
from pyddpdiag.ranks.session import Session
from pyddpdiag.ranks.supervise import supervise

T = TypeVar("T")


def launch(
    job: Callable[[Session], T],
    options: Options,
    node: Node,
    *,
    prepare: Callable[[], str | None] = lambda: None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> T:
    """Runs a job on the ranks of `node` and returns the result of the first. No process outlives the call.

    Args:
        job: called on each rank with its process group up. It is pickled: the function must be importable by a
            spawned process, and importing it should take no time (let it import torch by itself).
        options: see there.
        node: which ranks are started here.
        prepare: called after all other checks and before the first rank is started. Its result on the machine
            of rank 0 is every rank's `Session.payload`; its errors are raised.
        on_event: called in this thread with every event of every rank, and with notes of the launcher's own.

    Raises:
        NativeModuleError: torch is not installed; nothing was started.
        UsageError: an interface is not available; nothing was started.
        RankFailedError: a rank failed or died; all others have been ended.
        KeyboardInterrupt, SystemExit: this process was asked to stop; all ranks have been ended.
    """
    require_torch()  # here, or each rank ends in a traceback
    interface, note = interfaces.choose(options.interfaces, local=node.alone)
    if note:
        on_event(Note(note))
    payload = prepare()
    ranks: list[process.RankProcess] = []
    with interrupts.noted() as stop, fresh_file() as path:
        try:
            for place in node.places(FileTarget(str(path))):
                assignment = Assignment(
                    place, options, interface, payload=payload, fresh_file=node.place is None
                )
                ranks.append(process.start(assignment, job, path.parent))
            return cast("T", supervise(ranks, stop, options.timeout_s, on_event))
        finally:
            process.end(ranks)
