"""What a rank's training receives once its process group is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.workloads import workload
from pyddpdiag.workloads.workload import Workload


def prepare(settings: TrainSettings) -> Workload:
    """Data and network of the settings.

    Raises:
        DataError: the data cannot be used.
        TrainError: a package that the data needs is not installed.
    """
    return workload.prepare(settings.arch, settings.data, image_size=settings.image_size, seed=settings.seed)


@dataclass(frozen=True)
class Session:
    """One rank's part of a training.

    Attributes:
        settings: of the run.
        place: of this rank.
        trace: folder of the trace, the same on all ranks; None for none.
        tell: passes an event of `train.events`, or a message of a job of your own, to whoever watches.
        prepare: makes data and network; replaceable, so that others can be trained by the same loop.
    """

    settings: TrainSettings
    place: Place
    trace: str | None
    tell: Callable[[object], None]
    prepare: Callable[[TrainSettings], Workload] = field(default=prepare)
