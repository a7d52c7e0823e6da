"""Switches the chosen communication hook on, and the recorder where the hook records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol, TypeVar

from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.paths.options import Compress
from pyddpdiag.train.settings import HookKind

T = TypeVar("T")

# The options for `recorder.attach`, for the hooks that use it.
_COMPRESS: Final[dict[HookKind, Compress | None]] = {
    HookKind.NATIVE: None,
    HookKind.BF16: "bf16",
    HookKind.FP16: "fp16",
    HookKind.BF16_FEEDBACK: "bf16",
    HookKind.SHARED: None,
}


class Probe(Protocol):
    """What the training loop needs from a recorder."""

    def steps(self, loader: Iterable[T]) -> Iterable[T]:
        """The loader's batches, each of them one step."""
        ...

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Marks a part of the program that is not training."""
        ...


class NoProbe:
    """Stands in for the recorder where nothing is recorded."""

    def steps(self, loader: Iterable[T]) -> Iterable[T]:
        """The loader's batches, as they are."""
        return loader

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Marks nothing."""
        return nullcontext()


@contextmanager
def probes(
    ddp: DistributedDataParallel,
    hook: HookKind,
    trace: str | None,
    overwrite: bool,
    watchdog_s: float | None = None,
) -> Iterator[Probe]:
    """Registers `hook` with `ddp`. Closes the recorder at the end of the block unless that failed.

    The trace of a failed rank stays open on purpose: the file is complete, and shows that the end was not
    orderly.
    """
    if not hook.records or trace is None:
        if hook is HookKind.BUILTIN:
            from torch._C._distributed_c10d import BuiltinCommHookType

            ddp._register_builtin_comm_hook(BuiltinCommHookType.ALLREDUCE)  # type: ignore[no-untyped-call]
        yield NoProbe()
        return

    import pyddpdiag

    recorder = pyddpdiag.Recorder(trace, overwrite=overwrite, watchdog_s=watchdog_s)
    recorder.modules.set_recorded_by("train")
    if hook in _COMPRESS:
        recorder.attach(
            ddp,
            compress=_COMPRESS[hook],
            error_feedback=hook is HookKind.BF16_FEEDBACK,
            shared_memory="auto" if hook is HookKind.SHARED else "off",
        )
    else:
        function = {
            HookKind.TIMED: pyddpdiag.timed_allreduce,
            HookKind.TIMED_BF16: pyddpdiag.timed_bf16_allreduce,
            HookKind.TIMED_FP16: pyddpdiag.timed_fp16_allreduce,
        }[hook]
        ddp.register_comm_hook(recorder, function)
    yield recorder
    recorder.close()
