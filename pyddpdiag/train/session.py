"""What a rank's job is given once its process group is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyddpdiag.train.events import Event
from pyddpdiag.train.rendezvous import Place
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.train.workload import Workload, prepare


@dataclass(frozen=True)
class Session:
    """One rank's part of a run.

    Attributes:
        settings: of the run.
        place: of this rank.
        trace: folder of the trace, the same on all ranks; None for none.
        tell: passes an event to whoever watches.
        prepare: makes data and network; replaceable, so that others can be trained by the same loop.
    """

    settings: TrainSettings
    place: Place
    trace: str | None
    tell: Callable[[Event], None]
    prepare: Callable[[TrainSettings], Workload] = field(default=prepare)
