"""DDP communication hooks for `ddp.register_comm_hook(state, hook)`.

DDP inspects a hook's annotations and does not take strings for them: no `from __future__ import annotations` here.
"""

import atexit
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _exchange, _native, compression
from pyddpdiag.errors import UsageError
from pyddpdiag.recorder import Recorder, closed_error, latest_open

# Per state that is no recorder: the recorder that serves it, and the group it names.
_served: dict[Any, tuple[Recorder, dist.ProcessGroup | None]] = {}


def timed_allreduce(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over the ranks and records where the time went.

    The result is that of torch's builtin all-reduce hook to the last bit: the buffer is divided by the number of
    ranks, then summed in place.

    Args:
        state: a `Recorder`; or, as with torch's own hooks, a ProcessGroup to reduce over, or None for the group of
            the DDP module. Without a Recorder the one that was opened last in this process is used; if none is
            open, one is opened in a new folder `ddptrace-<time>`.
        bucket: DDP's bucket; its flat buffer is reduced in place.

    Returns:
        A future that holds the bucket's buffer.

    Raises:
        RecorderClosedError: the recorder was closed while DDP still trains.
        NotGlooError: the process group does not reduce the bucket over Gloo.
        UsageError: `state` is something else.
    """
    # Runs for every bucket: no more Python than must be where the state is what it mostly is.
    if type(state) is Recorder:
        try:
            return _native.timed_allreduce(state._core, bucket)
        except RuntimeError as error:
            _raise_if_closed(state, error)
            raise
    return _timed(state, bucket, compression.NONE)


def timed_bf16_allreduce(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """As `timed_allreduce`, with f32 and f64 gradients on their way as bfloat16: half of what travels.

    Each rank divides by the number of ranks n in the gradients' own precision and rounds once, to 8 bits; the sum
    is rounded again after each of the n - 1 additions. The error of an average is at most n * 2^-8 of the mean of the
    absolute values that went into it, to first order (docs/compression.md). Gradients of other types travel as they
    are.

    Args, returns, raises: as `timed_allreduce`.
    """
    return _timed(state, bucket, compression.NUMBERS["bf16"])


def timed_fp16_allreduce(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """As `timed_bf16_allreduce`, as float16: 11 bits, but infinite above 65504. Over Gloo it saves no time.

    The error of an average is at most n * 2^-11 of the mean of the absolute values that went into it, plus n * 2^-25
    for those below 2^-14.

    Args, returns, raises: as `timed_allreduce`.
    """
    return _timed(state, bucket, compression.NUMBERS["fp16"])


def timed(hook: Callable[..., Any], recorder: Recorder | None = None) -> Callable[..., Any]:
    """Puts the probes around another communication hook: PowerSGD, torch's own, one of yours.

    Example::

        ddp.register_comm_hook(powersgd_state, pyddpdiag.timed(powerSGD_hook))

    Args:
        hook: a hook for `ddp.register_comm_hook`. It gets the state that it is registered with.
        recorder: where to record; default: the recorder that was opened last in this process, or a new one in a
            folder `ddptrace-<time>`.

    Returns:
        A hook whose buckets are in the trace with the bytes of the gradients (what the hook sends is its own
        matter) and, as started, the first Gloo operation that it starts itself.

    Raises:
        UsageError: `hook` is not callable; or, when it runs, does not return a future.
    """
    if not callable(hook):
        raise UsageError(f"timed() takes a communication hook, not {type(hook).__name__}.")
    name = getattr(hook, "__name__", type(hook).__name__)

    def timed_hook(
        state: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        def run() -> Any:
            future = hook(state, bucket)
            if not isinstance(future, torch._C.Future):
                raise UsageError(
                    f"the communication hook {name} returned {type(future).__name__}, not a torch.futures.Future.",
                    hint="return dist.all_reduce(..., async_op=True).get_future().then(...).",
                )
            return future

        core = (recorder if recorder is not None else _current())._core
        return _native.timed_foreign(core, bucket, run)

    # DDP logs this name, and asks for it.
    timed_hook.__name__ = timed_hook.__qualname__ = f"timed_{name}"
    return timed_hook


def _timed(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
    compress: int,
) -> torch.futures.Future[torch.Tensor]:
    recorder, group = (state, None) if isinstance(state, Recorder) else _serve(state, bucket)
    core = recorder._core
    try:
        if compress != compression.NONE and bucket.index() == 0:
            _exchange.prepare(core, group if group is not None else _native.group_of(core, bucket))
        return _native.timed_allreduce(core, bucket, group, compress)
    except RuntimeError as error:
        _raise_if_closed(state, error)
        raise


def _raise_if_closed(state: Any, error: RuntimeError) -> None:
    if isinstance(state, Recorder) and state.closed:
        raise closed_error(state, "reduce a bucket with it") from error


def _current() -> Recorder:
    """The recorder for hooks that were not given one."""
    recorder = latest_open()
    if recorder is None:
        recorder = Recorder()
        atexit.register(recorder.close)
    return recorder


def _serve(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> tuple[Recorder, dist.ProcessGroup | None]:
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
        recorder._require_gloo_group(state, bucket.buffer().device)
    served = (recorder, state)
    _served[state] = served
    return served
