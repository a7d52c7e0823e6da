"""DDP communication hooks for `ddp.register_comm_hook(state, hook)`.

DDP inspects a hook's annotations and does not take strings for them: no `from __future__ import annotations` here.
"""

import atexit
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _native
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
    try:
        core = state._core
        group = None
    except AttributeError:
        recorder, group = _serve(state, bucket)
        core = recorder._core
    try:
        return _native.timed_allreduce(core, bucket, group)
    except RuntimeError as error:
        if core.closed and isinstance(state, Recorder):
            raise closed_error(state, "reduce a bucket with it") from error
        raise


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
    recorder = latest_open()
    if recorder is None:
        recorder = Recorder()
        atexit.register(recorder.close)
    if state is not None:
        recorder._require_gloo_group(state, bucket.buffer().device)
    served = (recorder, state)
    _served[state] = served
    return served
