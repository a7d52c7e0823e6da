"""Data parallelism without DDP: averages gradients over the ranks, while the backward pass still runs."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _exit, _native
from pyddpdiag._buckets import Bucket, check_same_on_all_ranks, in_buckets, named
from pyddpdiag._ddp import Description
from pyddpdiag.errors import NoProcessGroupError, ReductionError, UsageError
from pyddpdiag.flattening import STREAMING_ABOVE
from pyddpdiag.recorder import Recorder, latest_open


class GradientReducer:
    """Averages the gradients of parameters over the ranks, without DDP.

    The parameters' gradients go through preallocated buckets, from the last parameter to the first, as DDP's do. A
    bucket is flattened, scaled and cast in one pass and its all-reduce begun as soon as all its gradients are there,
    while the backward pass goes on with the rest. Then `all_reduce` waits and writes the averages back::

        reducer = GradientReducer(model.named_parameters())
        for batch in loader:
            optimizer.zero_grad()
            loss(model(batch)).backward()
            reducer.all_reduce()
            optimizer.step()

    All ranks must make it with the same parameters in the same order; it is checked here, which waits for all ranks.

    Its buckets are in the trace of a `Recorder` as DDP's are, with the statistics, and the sentinel watches them.

    Args:
        params: parameters, or pairs of name and parameter, for better messages. Those that need no gradient are
            left out.
        bucket_cap_mb: size of a bucket in MiB; a larger parameter has a bucket of its own.
        dtype: type of the buckets, such as torch.bfloat16 for half the traffic; default: that of the parameters.
        process_group: default: the world.
        recorder: where to record; default: the recorder that is open in this process when a backward pass begins (the
            last one that was opened), or none.

    Raises:
        NoProcessGroupError: torch.distributed is not initialised.
        NotGlooError: `recorder` was given, and the process group does not reduce the gradients over Gloo.
        UsageError: no parameters, one that cannot be reduced, or an argument out of its range.
        ReductionError: the ranks have not the same parameters.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        bucket_cap_mb: float = 25,
        dtype: torch.dtype | None = None,
        process_group: dist.ProcessGroup | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise NoProcessGroupError(
                "a GradientReducer needs other ranks, but torch.distributed is not initialised.",
                hint="make it after torch.distributed.init_process_group('gloo', ...).",
            )
        _exit.arrange()
        group = process_group if process_group is not None else dist.group.WORLD
        assert group is not None
        self._group = group
        self._size = group.size()
        self._rank = group.rank()
        self._names, self._parameters = named(params)
        self._cap_mb = bucket_cap_mb
        self._buckets = in_buckets(self._parameters, bucket_cap_mb, dtype)
        self._recorder = recorder
        if recorder is not None:
            recorder._require_gloo_group(group, self._parameters[0].device)
        # The recorder that knows of us, and how we tell it.
        self._known: tuple[weakref.ref[Recorder], _native.Reduction] | None = None
        check_same_on_all_ranks(self._buckets, self._parameters, group)
        self._home = {p: b for b, bucket in enumerate(self._buckets) for p in bucket.parameters}
        self._synchronising = True
        self._begin()
        # Weakly: a reducer that is dropped must let go of its process group, whose worker threads would otherwise
        # live into the end of the interpreter.
        this = weakref.ref(self)
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_ready, this, i))  # type: ignore[no-untyped-call]
            for i, parameter in enumerate(self._parameters)
        ]

    def _begin(self) -> None:
        """Waits for the first gradient of a pass."""
        self._missing = [len(bucket.parameters) for bucket in self._buckets]
        self._seen = bytearray(len(self._parameters))
        self._accumulated = False
        self._recording: _native.Reduction | None = None
        self._begun = False
        self._next = 0
        self._flying: list[tuple[dist.Work, list[torch.Tensor]]] = []

    def _ready(self, index: int, parameter: torch.Tensor) -> None:
        """Runs in the backward pass, right after a gradient has been accumulated."""
        self._accumulated = True
        if not self._synchronising:
            return
        if not self._begun:
            self._begin_recording()
            if self._recording is not None:
                self._recording.first_gradient()
        if self._seen[index]:
            raise UsageError(
                f"rank {self._rank}: '{self._names[index]}' got a second gradient before all_reduce() was called.",
                hint="call all_reduce() after each backward pass; to accumulate several, run all but the last "
                "under reducer.no_sync().",
            )
        self._seen[index] = 1
        home = self._home[index]
        self._missing[home] -= 1
        # In the same order on every rank, whatever the order in which gradients come.
        while self._next < len(self._buckets) and self._missing[self._next] == 0:
            self._launch()

    def _begin_recording(self) -> None:
        """Finds out who records this pass. All ranks come here together if any has a sentinel, which then meets."""
        self._begun = True
        recorder = self._recorder if self._recorder is not None else latest_open()
        if recorder is None or recorder.closed:
            return
        if self._known is None or self._known[0]() is not recorder:
            device = self._parameters[0].device
            if _native.backend_name(self._group, str(device)) != "gloo":
                return
            module = recorder._add_module(
                Description("GradientReducer", self._group, self._cap_mb, self._names, self._parameters)
            )
            self._known = (weakref.ref(recorder), _native.Reduction(recorder._core, module))
            recorder._write_sidecar()
        self._recording = self._known[1]

    def _launch(self) -> None:
        bucket = self._buckets[self._next]
        gradients = [self._gradient(i) for i in bucket.parameters]
        _native.flatten(gradients, bucket.buffer, 1 / self._size, None, STREAMING_ABOVE)
        if self._recording is not None:
            parameters = [self._parameters[i] for i in bucket.parameters]
            work = self._recording.begin(bucket.index, len(self._buckets), bucket.buffer, parameters)
        else:
            work = dist.all_reduce(bucket.buffer, group=self._group, async_op=True)
        assert work is not None
        self._flying.append((work, gradients))
        self._next += 1

    def _gradient(self, index: int) -> torch.Tensor:
        parameter = self._parameters[index]
        bucket = self._buckets[self._home[index]]
        if not parameter.requires_grad or parameter.shape != bucket.shapes[index]:
            raise UsageError(
                f"rank {self._rank}: '{self._names[index]}' was changed (frozen or of another shape) since the "
                "GradientReducer was made.",
                hint="close the reducer and make a new one, on all ranks.",
            )
        if parameter.grad is None:
            # It took no part in the loss here, but perhaps on another rank.
            parameter.grad = torch.zeros_like(parameter)
        gradient = parameter.grad
        if gradient.layout is not torch.strided:
            raise UsageError(
                f"rank {self._rank}: the gradient of '{self._names[index]}' is sparse.",
                hint="use sparse=False in the embedding.",
            )
        return gradient

    def all_reduce(self, timeout_s: float | None = None) -> None:
        """Waits until all gradients are averaged and writes them back into the parameters' `grad`.

        To be called on every rank after each backward pass. A parameter that got no gradient on this rank counts as
        zeros and gets the average of the others; one that has a gradient from before counts with that.

        Args:
            timeout_s: how long to wait for each bucket, in seconds; default: the process group's timeout.

        Raises:
            UsageError: no gradient came since the last call, a parameter was changed, or a gradient is sparse.
            ReductionError: a bucket was not reduced: another rank is missing, late or gone.
        """
        if not self._hooks:
            raise UsageError(f"rank {self._rank}: the GradientReducer is closed.", hint="make a new one.")
        if not self._accumulated:
            raise UsageError(
                f"rank {self._rank}: all_reduce() was called twice, or without a backward pass: no gradient came "
                "since the last call.",
                hint="a rank that has no batch can run the backward pass of a loss times 0.",
            )
        if not self._begun:
            self._begin_recording()
        recording = self._recording
        try:
            while self._next < len(self._buckets):
                self._launch()
            if recording is not None:
                recording.waiting()
            for bucket, (work, gradients) in zip(self._buckets, self._flying, strict=True):
                self._wait(bucket, work, timeout_s)
                _native.unflatten_(bucket.buffer, gradients, 1.0, STREAMING_ABOVE)
                if recording is not None:
                    recording.taken()
        except BaseException:
            self._known = None  # what it knows of this pass will not come to its end
            raise
        finally:
            self._begin()
        if recording is not None:
            recording.done()

    def _wait(self, bucket: Bucket, work: Any, timeout_s: float | None) -> None:
        try:
            if timeout_s is None:
                work.wait()
            else:
                work.wait(timedelta(seconds=timeout_s))
        except RuntimeError as error:
            first = self._names[bucket.parameters[0]]
            raise ReductionError(
                f"rank {self._rank}: bucket {bucket.index} ('{first}' and {len(bucket.parameters) - 1} more, "
                f"{bucket.buffer.nbytes / 1e6:.3f} MB) was not reduced over the {self._size} ranks: {error}",
                hint="another rank failed, hangs, or did not call all_reduce(); look there first. This process "
                "group cannot be used any more.",
            ) from error

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here accumulate gradients and reduce nothing."""
        before = self._synchronising
        self._synchronising = False
        try:
            yield
        finally:
            self._synchronising = before

    def close(self) -> None:
        """Takes the hooks off the parameters."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self) -> GradientReducer:
        """The reducer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the reducer."""
        self.close()


def _ready(this: weakref.ref[GradientReducer], index: int, parameter: torch.Tensor) -> None:
    reducer = this()
    if reducer is not None:
        reducer._ready(index, parameter)


__all__ = ["GradientReducer"]
