"""What all our communication hooks do with a bucket, and the hook that is bound to one recorder.

DDP inspects a hook's annotations and does not accept strings: no `from __future__ import annotations` here.
"""

from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import UsageError
from pyddpdiag.paths import gloo, setup
from pyddpdiag.paths.options import PathRequest
from pyddpdiag.record.copied import CopiedRecorder
from pyddpdiag.record.recording import Recording


def average(
    recorder: Recording,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
    group: dist.ProcessGroup | None,
    request: PathRequest,
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over `group`, by default that of its DDP module, and records it.

    Raises:
        RecorderClosedError: the recorder was closed while DDP still trains.
        ReductionError: the 16-bit exchange could not reach the other ranks.
    """
    core = recorder.core
    try:
        if request.needs_setup and bucket.index() == 0:
            over = group if group is not None else _native.group_of(core, bucket)
            return _native.timed_allreduce(core, bucket, group, setup.prepare(core, over, request))
        return _native.timed_allreduce(core, bucket, group)
    except RuntimeError as error:
        if recorder.closed:
            raise recorder.closed_error("reduce a bucket with it") from error
        raise


class RecorderHook:
    """A hook that records into one recorder, whatever state it is registered with (see `Recorder.hook`).

    An object and not a closure, so that a module that holds it can be pickled and copied. The copy's recorder is a
    CopiedRecorder.

    Args:
        recorder: where to record.
        request: how the buckets are to be summed.
    """

    def __init__(self, recorder: Recording | CopiedRecorder, request: PathRequest) -> None:
        self.recorder = recorder
        self.request = request
        # DDP asks for them, as a function has them.
        self.__name__ = self.__qualname__ = "recorder_hook"

    def __call__(
        self,
        state: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        """Averages a bucket.

        Raises:
            NotGlooError: the group that is its state does not run the bucket over Gloo.
            UsageError: another kind of state, or this is a copy.
        """
        detached = _native.detached_allreduce(bucket)
        if detached is not None:
            return detached
        recorder = self.recorder
        if isinstance(recorder, CopiedRecorder):
            raise recorder.error()
        group = None
        if isinstance(state, dist.ProcessGroup):
            group = state
            gloo.require(group, bucket.buffer().device, recorder.rank)
        elif state is not None and state is not recorder:
            raise UsageError(
                f"the state of a recorder's own hook is that recorder, a ProcessGroup or None, not "
                f"{type(state).__name__}.",
                hint="ddp.register_comm_hook(None, recorder.hook(...))",
            )
        return average(recorder, bucket, group, self.request)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the hook has a copy of the recorder."""
        return (RecorderHook, (self.recorder, self.request))
