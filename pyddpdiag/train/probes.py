"""Switches the chosen communication hook on, and the recorder where the hook records."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.cures import processes
from pyddpdiag.cures.options import option
from pyddpdiag.errors import UsageError
from pyddpdiag.paths.averaging import Averaging, HookKind
from pyddpdiag.ranks.cores import threads_per_rank
from pyddpdiag.ranks.session import Note
from pyddpdiag.train.rank_session import Session

if TYPE_CHECKING:
    from pyddpdiag.record.recorder import Recorder

T = TypeVar("T")


class NoProbe:
    """Stands in for the recorder where nothing is recorded."""

    def steps(self, loader: Iterable[T]) -> Iterable[T]:
        """The loader's batches, as they are."""
        return loader

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Marks nothing."""
        return nullcontext()


Probe: TypeAlias = "Recorder | NoProbe"
"""What the training loop marks its steps and phases with."""


@contextmanager
def probes(
    ddp: DistributedDataParallel,
    averaging: Averaging,
    trace: str | None,
    overwrite: bool,
    watchdog_s: float | None = None,
) -> Iterator[Probe]:
    """Has `ddp` average this way. Closes the recorder at the end of the block unless that failed.

    The trace of a failed rank stays open on purpose: the file is complete, and shows that the end was not
    orderly.
    """
    hook = averaging.hook
    if not hook.records or trace is None:
        if hook is HookKind.BUILTIN:
            from torch._C._distributed_c10d import BuiltinCommHookType

            ddp._register_builtin_comm_hook(BuiltinCommHookType.ALLREDUCE)  # type: ignore[no-untyped-call]
        yield NoProbe()
        return

    import pyddpdiag
    from pyddpdiag.record import agreement

    with agreement.named("train", exactly=True):
        recorder = pyddpdiag.Recorder(trace, overwrite=overwrite, watchdog_s=watchdog_s)
    recorder.modules.set_recorded_by("train")
    if hook is HookKind.NATIVE:
        recorder.attach(ddp, **averaging.path)
    else:
        timed = recorder.hook(**averaging.path) if averaging.path else pyddpdiag.timed_allreduce
        ddp.register_comm_hook(recorder, timed)
    yield recorder
    recorder.close()


def ddp_arguments(session: Session) -> dict[str, Any]:
    """What DistributedDataParallel gets by the settings.

    Raises:
        UsageError: this torch lacks an argument.
    """
    wanted = session.settings.ddp_arguments
    known = inspect.signature(DistributedDataParallel).parameters
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"DistributedDataParallel of torch {torch.__version__} has no {name}.",
                hint=f"leave {option(name)} out.",
            )
    return wanted


def use_cores(session: Session) -> int:
    """Gives this rank its threads and cores; how many threads it has. All ranks call it together."""
    settings, place = session.settings, session.place
    threads = settings.threads or threads_per_rank(place.local_world_size)
    torch.set_num_threads(threads)
    if settings.pin_ranks:
        group = dist.group.WORLD
        assert group is not None
        why = processes.pin(group)
        if why and place.rank == 0:
            session.tell(Note(why))
    return threads
