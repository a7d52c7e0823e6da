"""DDP communication hooks for `ddp.register_comm_hook(state, hook)`.

DDP inspects a hook's annotations and does not accept strings: no `from __future__ import annotations` here.
"""

import atexit
import sys
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import UsageError
from pyddpdiag.output import say
from pyddpdiag.paths import gloo
from pyddpdiag.paths.options import PathRequest
from pyddpdiag.record import registered
from pyddpdiag.record.bucket_hook import average
from pyddpdiag.record.copied import CopiedRecorder
from pyddpdiag.record.latest import latest_open
from pyddpdiag.record.orderly_exit import await_at_exit
from pyddpdiag.record.recorder import Recorder

_EXACT, _BF16, _FP16 = PathRequest(), PathRequest("bf16"), PathRequest("fp16")
# For each state that is not a recorder: the recorder that serves it, and the group it names.
_served: dict[Any, tuple[Recorder, dist.ProcessGroup | None]] = {}


@registered.averaging
def timed_allreduce(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over the ranks and records where the time went.

    The result equals that of torch's builtin all-reduce hook to the last bit: the buffer is divided by the
    number of ranks, then summed in place.

    Args:
        state: a `Recorder`; or, as with torch's own hooks, a ProcessGroup to reduce over, or None for the group of
            the DDP module. Without a Recorder, the hook uses the one that was opened last in this process; if
            none is open, it opens one in a new folder `ddptrace-<time>`, which rank 0 names on standard
            error.
        bucket: DDP's bucket; its flat buffer is reduced in place.

    Returns:
        A future that holds the bucket's buffer.

    Raises:
        RecorderClosedError: the recorder was closed while DDP still trains.
        NotGlooError: the process group does not reduce the bucket over Gloo.
        UsageError: `state` is something else.
    """
    # Runs for every bucket, so keep the Python to a minimum for the usual kind of state.
    if type(state) is Recorder:
        try:
            return _native.timed_allreduce(state.core, bucket)
        except RuntimeError as error:
            if state.closed:
                raise state.closed_error("reduce a bucket with it") from error
            raise
    return _timed(state, bucket, _EXACT)


@registered.averaging
def timed_bf16_allreduce(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Like `timed_allreduce`, but f32 and f64 gradients travel as bfloat16: half the traffic.

    The same as `recorder.hook(compress="bf16")`. Each rank divides by the number of ranks n in the gradients' own
    precision and rounds once, to 8 bits. Our own exchange rounds the sum once more. Gloo's all-reduce, used
    for small buckets of more than 2 ranks and on accelerators, rounds after each of its n - 1 additions. The
    error of an average is at most 2 * 2^-8, or n * 2^-8, of the mean of the absolute values that went into
    it, to first order (docs/compression.md). Gradients of other types travel as they are.

    Args, returns, raises: as `timed_allreduce`.
    """
    return _timed(state, bucket, _BF16)


@registered.averaging
def timed_fp16_allreduce(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Like `timed_bf16_allreduce`, but in float16: 11 bits, and infinite above 65504.

    The same as `recorder.hook(compress="fp16")`. Through our exchange it is as fast as bfloat16; through
    Gloo's own all-reduce, which adds float16 values one by one, it saves no time. The error bound is that of
    bfloat16 with 2^-11 in place of 2^-8, plus n * 2^-25 for values below 2^-14.

    Args, returns, raises: as `timed_allreduce`.
    """
    return _timed(state, bucket, _FP16)


def timed(hook: Callable[..., Any], recorder: Recorder | None = None) -> Callable[..., Any]:
    """Puts the probes around another communication hook: PowerSGD, one of torch's own, one of yours.

    Example::

        ddp.register_comm_hook(powersgd_state, pyddpdiag.timed(powerSGD_hook))

    Args:
        hook: a hook for `ddp.register_comm_hook`. It gets the state that it is registered with.
        recorder: where to record; default: the recorder that was opened last in this process, or a new one in a
            folder `ddptrace-<time>`.

    Returns:
        A hook whose buckets are in the trace: `bytes` is the size of the gradients, not of what the hook
            sends; `started` is the hook's first Gloo operation.

    Raises:
        UsageError: `hook` is not callable; or, when it runs, does not return a future.
    """
    if not callable(hook):
        raise UsageError(f"timed() takes a communication hook, not {type(hook).__name__}.")
    return TimedHook(hook, recorder)


class TimedHook(registered.Probed):
    """Another hook with the probes around it; made by `timed`. An object, so that it can be pickled and copied."""

    def __init__(self, hook: Callable[..., Any], recorder: Recorder | CopiedRecorder | None) -> None:
        self._hook = hook
        self._recorder = recorder
        # DDP requires this name and logs it.
        self._name = getattr(hook, "__name__", type(hook).__name__)
        self.__name__ = self.__qualname__ = f"timed_{self._name}"

    def __call__(
        self,
        state: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        """Runs the hook on a bucket.

        Raises:
            UsageError: the hook does not return a future, or this is a copy.
        """
        if isinstance(self._recorder, CopiedRecorder):
            raise self._recorder.error()

        def run() -> Any:
            future = self._hook(state, bucket)
            if not isinstance(future, torch._C.Future):
                raise self._not_a_future(future)
            await_at_exit(future)
            return future

        core = (self._recorder if self._recorder is not None else _current()).core
        return _native.timed_foreign(core, bucket, run)

    def _not_a_future(self, returned: object) -> Exception:
        return UsageError(
            f"the communication hook {self._name} returned {type(returned).__name__}, not a torch.futures.Future.",
            hint="return dist.all_reduce(..., async_op=True).get_future().then(...).",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has a copy of the recorder."""
        return (TimedHook, (self._hook, self._recorder))


class ScriptsHook(TimedHook):
    """One that a script registered as it is, and that we put the probes around: it looks like the script's.

    DDP has accepted it. What DDP says of what it returns, and its name in DDP's log, are as without the probes; a
    copy is the script's hook.
    """

    def __init__(self, hook: Callable[..., Any], recorder: Recorder) -> None:
        super().__init__(hook, recorder)
        self.__name__, self.__qualname__ = hook.__name__, hook.__qualname__

    def _not_a_future(self, returned: object) -> Exception:
        return _NotAFuture(returned)

    def __call__(
        self,
        state: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        """Runs the hook on a bucket, and returns whatever it does."""
        try:
            return super().__call__(state, bucket)
        except _NotAFuture as error:
            return error.returned  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        # Also where it is unpickled without pyddpdiag.
        return (itemgetter(0), ((self._hook,),))


class _NotAFuture(Exception):  # noqa: N818
    def __init__(self, returned: Any) -> None:
        super().__init__()
        self.returned = returned


def _timed(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
    request: PathRequest,
) -> torch.futures.Future[torch.Tensor]:
    detached = _native.detached_allreduce(bucket)
    if detached is not None:
        return detached
    recorder, group = (state, None) if isinstance(state, Recorder) else _serve(state, bucket)
    return average(recorder, bucket, group, request)


def _current() -> Recorder:
    """The recorder for hooks without one of their own."""
    recorder = latest_open()
    if not isinstance(recorder, Recorder):
        recorder = Recorder()
        atexit.register(recorder.close)
        if recorder.rank == 0:
            say(
                f"pyddpdiag records into '{recorder.folder}': the hook was registered without a Recorder. "
                f"Afterwards: pyddpdiag report {recorder.folder}",
                sys.stderr,
            )
    return recorder


def _serve(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> tuple[Recorder, dist.ProcessGroup | None]:
    if isinstance(state, CopiedRecorder):
        raise state.error()
    if state is not None and not isinstance(state, dist.ProcessGroup):
        raise UsageError(
            f"the state of timed_allreduce must be a Recorder, a ProcessGroup or None, not {type(state).__name__}.",
            hint="ddp.register_comm_hook(pyddpdiag.Recorder('runs/demo'), pyddpdiag.timed_allreduce)",
        )
    served = _served.get(state)
    if served is not None and not served[0].closed:
        return served
    recorder = _current()
    if state is not None:
        gloo.require(state, bucket.buffer().device, recorder.rank)
    served = (recorder, state)
    _served[state] = served
    return served
