"""Switches the chosen communication hook on, and the recorder where the hook records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.paths.averaging import Averaging, HookKind

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
