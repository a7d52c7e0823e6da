"""Switches the chosen communication hook on, and the recorder where the hook records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.compression import Compress
from pyddpdiag.train.settings import HookKind

T = TypeVar("T")

# What `recorder.attach` is told, for the hooks that go through it.
_COMPRESS: Final[dict[HookKind, Compress | None]] = {
    HookKind.NATIVE: None,
    HookKind.BF16: "bf16",
    HookKind.FP16: "fp16",
    HookKind.BF16_FEEDBACK: "bf16",
}


class Probe(Protocol):
    """What the training loop needs of a recorder."""

    def steps(self, loader: Iterable[T]) -> Iterable[T]:
        """The loader's batches, each of them one step."""
        ...


class NoProbe:
    """Stands in for the recorder where nothing is recorded."""

    def steps(self, loader: Iterable[T]) -> Iterable[T]:
        """The loader's batches, as they are."""
        return loader


@contextmanager
def probes(
    ddp: DistributedDataParallel, hook: HookKind, trace: str | None, overwrite: bool
) -> Iterator[Probe]:
    """Registers `hook` with `ddp`. Closes the recorder at the end of the block unless that failed.

    A trace of a failed rank stays open on purpose: the file is complete as it is, and says that the end was
    not an orderly one.
    """
    if not hook.records or trace is None:
        if hook is HookKind.BUILTIN:
            from torch._C._distributed_c10d import BuiltinCommHookType

            ddp._register_builtin_comm_hook(BuiltinCommHookType.ALLREDUCE)  # type: ignore[no-untyped-call]
        yield NoProbe()
        return

    import pyddpdiag

    recorder = pyddpdiag.Recorder(trace, overwrite=overwrite)
    if hook in _COMPRESS:
        recorder.attach(ddp, compress=_COMPRESS[hook], error_feedback=hook is HookKind.BF16_FEEDBACK)
    else:
        function = {
            HookKind.TIMED: pyddpdiag.timed_allreduce,
            HookKind.TIMED_BF16: pyddpdiag.timed_bf16_allreduce,
            HookKind.TIMED_FP16: pyddpdiag.timed_fp16_allreduce,
        }[hook]
        ddp.register_comm_hook(recorder, function)
    yield recorder
    recorder.close()
