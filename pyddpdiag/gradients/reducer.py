"""Data parallelism without DDP: averages gradients over the ranks, while the backward pass still runs."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import NoProcessGroupError, RecorderError, ReductionError, UsageError
from pyddpdiag.gradients.buckets import Bucket, BucketViews, check_same_on_all_ranks, in_buckets, named
from pyddpdiag.gradients.flattening import STREAMING_ABOVE
from pyddpdiag.paths import gloo, lanes_setup, shared_setup
from pyddpdiag.paths import lanes as lane_names
from pyddpdiag.paths.options import SharedMemory, path_request
from pyddpdiag.record import orderly_exit
from pyddpdiag.record.ddp_modules import Description
from pyddpdiag.record.recorder import Recorder


class GradientReducer:
    """Averages the gradients of parameters over the ranks, without DDP.

    The parameters' gradients go through preallocated buckets, from the last parameter to the first, as DDP's
    do. As soon as all its gradients are ready, a bucket is flattened, scaled and cast in one pass and its
    all-reduce begins, while the backward pass continues with the rest. Then `all_reduce` waits and writes the
    averages back::

        reducer = GradientReducer(model.named_parameters())
        for batch in loader:
            optimizer.zero_grad()
            loss(model(batch)).backward()
            reducer.all_reduce()
            optimizer.step()

    All ranks must create it with the same parameters in the same order. The constructor checks that and waits
    for all ranks.

    With a `recorder` its buckets are in the trace like DDP's, with statistics, and the sentinel watches them.

    Args:
        params: parameters, or pairs of name and parameter, for better messages. Those that need no gradient are
            left out.
        bucket_cap_mb: size of a bucket in MiB; a larger parameter has a bucket of its own.
        dtype: type of the buckets, such as torch.bfloat16 for half the traffic; default: that of the parameters.
        process_group: default: the world.
        recorder: where to record; default: nowhere. Once it is closed, gradients are averaged as before and nothing
            is recorded.
        shared_memory: "auto": where all ranks of the group share memory, they average the buckets there, without
            Gloo (docs/shared-memory.md); Gloo otherwise. "require": an error where they do not. "off": Gloo.
            The same on all ranks.
        lanes: interfaces of this host that carry parts of each bucket at once (docs/lanes.md); not with
            `shared_memory`. As many on all ranks.
        gradient_as_bucket_view: as DDP's option of this name: gradients are views of their buckets from the moment
            their all-reduce begins, and are not copied back. That is faster, and once they are averaged, they take no
            memory beside the buckets. What you keep of a gradient changes in the next pass; between `backward` and
            `all_reduce`, and after an error, gradients are undefined. Those of parameters that are not contiguous
            (channels last) are copied back all the same.

    Raises:
        NoProcessGroupError: torch.distributed is not initialised.
        NotGlooError: `recorder` or `lanes` was given, and the process group does not reduce the gradients over Gloo.
        UsageError: there are no parameters, one cannot be reduced, or an argument is out of its range; or gradients
            are to be views of buckets of another type.
        ReductionError: the ranks disagree on their parameters; they do not share memory, and must; or their lanes do
            not fit.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        bucket_cap_mb: float = 25,
        dtype: torch.dtype | None = None,
        process_group: dist.ProcessGroup | None = None,
        recorder: Recorder | None = None,
        shared_memory: SharedMemory = "off",
        lanes: Sequence[str] = (),
        gradient_as_bucket_view: bool = False,
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise NoProcessGroupError(
                "a GradientReducer needs other ranks, but torch.distributed is not initialised.",
                hint="make it after torch.distributed.init_process_group('gloo', ...).",
            )
        way = path_request(shared_memory=shared_memory, lanes=lanes)
        orderly_exit.arrange()
        group = process_group if process_group is not None else dist.group.WORLD
        assert group is not None
        self._group = group
        self._size = group.size()
        self._rank = group.rank()
        self._names, self._parameters = named(params)
        self._cap_mb = bucket_cap_mb
        self._buckets = in_buckets(self._parameters, bucket_cap_mb, dtype)
        # Empty: gradients have memory of their own.
        self._views: list[BucketViews] = []
        if gradient_as_bucket_view:
            self._views = [BucketViews(b, self._parameters, self._names) for b in self._buckets]
        self._recorder = recorder
        if recorder is not None or way.lanes:
            gloo.require(group, self._parameters[0].device, self._rank)
        # The recorder that knows this reducer, and our handle for recording into it.
        self._known: tuple[weakref.ref[Recorder], _native.Reduction] | None = None
        check_same_on_all_ranks(
            self._buckets, self._parameters, group, f"{shared_memory} {len(way.lanes)} lanes"
        )
        # What adds up the buckets in shared memory; None: Gloo does. Not the recorder's, which may be closed on some
        # ranks before others: all must go the same way.
        self._shared: _native.SharedRanks | None = None
        self._sharing = ""
        if shared_memory != "off":
            self._shared, self._sharing = shared_setup.share(group, shared_memory)
        self._places = [_native.SharedPlace() for _ in self._buckets]
        # What carries the buckets over several interfaces; None: the group does.
        self._lanes: _native.Lanes | None = None
        if way.lanes and self._size > 1:
            self._lane_names = lane_names.parse(way.lanes)
            self._lanes, self._lane_facts = lanes_setup.connect(group, self._lane_names)
        self._parts = [self._parts_of(bucket.buffer) for bucket in self._buckets]
        self._broken = ""  # why no pass can be trusted any more
        self._passes = -1
        self._home = {p: b for b, bucket in enumerate(self._buckets) for p in bucket.parameters}
        self._synchronising = True
        self._begin()
        # Weakly: a dropped reducer must release its process group, whose worker threads would otherwise live
        # until the interpreter shuts down.
        this = weakref.ref(self)
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_ready, this, i))  # type: ignore[no-untyped-call]
            for i, parameter in enumerate(self._parameters)
        ]

    def _parts_of(self, buffer: torch.Tensor) -> _native.LaneParts | None:
        """What carries a bucket over the lanes; None: what is empty or on an accelerator goes over the group."""
        if self._lanes is None or buffer.device.type != "cpu" or buffer.numel() == 0:
            return None
        return _native.LaneParts(buffer, self._lanes)

    def _begin(self) -> None:
        """Waits for the first gradient of a pass."""
        self._passes += 1
        self._missing = [len(bucket.parameters) for bucket in self._buckets]
        self._seen = bytearray(len(self._parameters))
        self._accumulated = False
        self._recording: _native.Reduction | None = None
        self._begun = False
        self._next = 0
        # A sum's work (None: it is complete already), and what brings its averages back to the gradients.
        self._in_flight: list[tuple[dist.Work | None, Callable[[], None]]] = []

    def _ready(self, index: int, parameter: torch.Tensor) -> None:
        """Runs in the backward pass, right after a gradient has been accumulated."""
        self._accumulated = True
        home = self._home[index]
        if self._views and home < self._next:
            self._broken = f"a second gradient of '{self._names[index]}' went into a bucket on its way"
            self._let_go()
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
        self._missing[home] -= 1
        # In the same order on every rank, whatever the order in which gradients arrive.
        try:
            while self._next < len(self._buckets) and self._missing[self._next] == 0:
                self._launch()
        except ReductionError:
            # The backward pass ends here, and with it this pass, of which the other ranks still wait for the rest: a
            # bucket of the next one must never meet it.
            self._known = None
            self._let_go()
            self._broken = self._broken or "the sum of a bucket could not begin"
            self._begin()
            raise

    def _begin_recording(self) -> None:
        """Finds out who records this pass. All ranks come here together if any has a sentinel, which then meets."""
        self._begun = True
        recorder = self._recorder
        if recorder is None or recorder.closed:
            return
        if self._known is None or self._known[0]() is not recorder:
            device = self._parameters[0].device
            if _native.backend_name(self._group, str(device)) != "gloo":
                return
            module = recorder.modules.add(
                Description("GradientReducer", self._group, self._cap_mb, self._names, self._parameters)
            )
            options = _native.PathOptions(shared=self._shared, lanes=self._lanes)
            self._known = (weakref.ref(recorder), _native.Reduction(recorder.core, module, options))
            if self._sharing:
                shared_setup.tell(recorder.core, self._group.group_name, self._sharing)
            if self._lanes is not None:
                lanes_setup.tell(
                    recorder.core, self._group, self._lane_names, (self._lanes, self._lane_facts)
                )
            recorder.modules.write_sidecar()
        self._recording = self._known[1]

    def _launch(self) -> None:
        self._require_sound()
        bucket = self._buckets[self._next]
        # The same on all ranks, or they are not in the same pass.
        number = self._passes * len(self._buckets) + bucket.index
        gradients = [self._gradient(i) for i in bucket.parameters]
        bring_back = self._fill(bucket, gradients)
        try:
            work, collect = self._started(bucket, number)
        except RecorderError:
            raise
        except RuntimeError as error:  # an earlier bucket has failed meanwhile
            raise self._not_reduced(bucket, error) from error
        self._in_flight.append((work, bring_back if collect is None else _first(collect, bring_back)))
        self._next += 1

    def _started(self, bucket: Bucket, number: int) -> tuple[dist.Work | None, Callable[[], None] | None]:
        """Begins a bucket's sum: its work, and what must run when that has ended before the sum is in the bucket."""
        parts = self._parts[bucket.index]
        if self._recording is not None:
            parameters = [self._parameters[i] for i in bucket.parameters]
            work = self._recording.begin(bucket.index, len(self._buckets), bucket.buffer, parameters, number)
            return work, None
        if parts is not None:
            return parts.begin(bucket.buffer), partial(parts.bring_back, bucket.buffer)
        if self._shared is not None and bucket.buffer.numel() > 0:
            return self._shared.add_up(bucket.buffer, number, self._places[bucket.index]), None
        return dist.all_reduce(bucket.buffer, group=self._group, async_op=True), None

    def _require_sound(self) -> None:
        if self._broken:
            raise ReductionError(
                f"rank {self._rank}: an earlier pass of this GradientReducer has failed; {self._broken}.",
                hint="look for the first error; then make a new GradientReducer on all ranks.",
            )

    def _fill(self, bucket: Bucket, gradients: list[torch.Tensor]) -> Callable[[], None]:
        """Scales the gradients into their bucket; returns what brings the averages back to them."""
        scale = 1 / self._size
        if self._views:
            return self._views[bucket.index].fill(gradients, scale)
        _native.flatten(gradients, bucket.buffer, scale, None, STREAMING_ABOVE)
        return partial(_native.unflatten_, bucket.buffer, gradients, 1.0, STREAMING_ABOVE)

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
            # It took no part in the loss on this rank, but perhaps on another.
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

        Call this on every rank after each backward pass. A parameter that got no gradient on this rank counts
        as zeros and gets the average of the others; one that still has an earlier gradient counts with that.

        Args:
            timeout_s: how long to wait for each bucket, in seconds; default: the process group's timeout.

        Raises:
            UsageError: there was no gradient since the last call, a parameter was changed, or a gradient is
                sparse.
            ReductionError: a bucket was not reduced: another rank is missing, late or gone; or a second gradient went
                into it meanwhile (`gradient_as_bucket_view`).
        """
        if not self._hooks:
            raise UsageError(f"rank {self._rank}: the GradientReducer is closed.", hint="make a new one.")
        if not self._accumulated:
            self._require_sound()
            raise UsageError(
                f"rank {self._rank}: all_reduce() was called twice, or without a backward pass: no gradient came "
                "since the last call.",
                hint="a rank that has no batch can run the backward pass of a loss times 0.",
            )
        if not self._begun:
            self._begin_recording()
        recording = self._recording
        try:
            self._require_sound()
            while self._next < len(self._buckets):
                self._launch()
            if recording is not None:
                recording.waiting()
            for bucket, (work, bring_back) in zip(self._buckets, self._in_flight, strict=True):
                if work is not None:
                    self._wait(bucket, work, timeout_s)
                bring_back()
                if recording is not None:
                    recording.taken()
        except BaseException:
            self._known = None  # what it knows of this pass will not come to its end
            self._let_go()
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
            raise self._not_reduced(bucket, error) from error

    def _not_reduced(self, bucket: Bucket, error: RuntimeError) -> ReductionError:
        first = self._names[bucket.parameters[0]]
        return ReductionError(
            f"rank {self._rank}: bucket {bucket.index} ('{first}' and {len(bucket.parameters) - 1} more, "
            f"{bucket.buffer.nbytes / 1e6:.3f} MB) was not reduced over the {self._size} ranks: {error}",
            hint="another rank failed, hangs, or did not call all_reduce(); look there first. This process "
            "group cannot be used any more.",
        )

    def _let_go(self) -> None:
        """Makes buckets on their way through shared memory ours again: no other rank sums what is in them later."""
        if self._shared is not None and self._in_flight:
            self._shared.give_up()
            self._shared = self._recording = None
            self._broken = self._broken or "its buckets in shared memory may be half summed"
        if self._lanes is not None and self._in_flight:
            self._broken = self._broken or "its buckets over several interfaces may be half summed"

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within this context accumulate gradients and reduce nothing."""
        before = self._synchronising
        self._synchronising = False
        try:
            yield
        finally:
            self._synchronising = before

    def close(self) -> None:
        """Removes the hooks from the parameters, and lets go of shared memory."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._let_go()
        self._shared = self._known = self._lanes = None
        self._parts = []

    def __enter__(self) -> GradientReducer:
        """The reducer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the reducer."""
        self.close()


def _first(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        one()
        other()

    return both


def _ready(this: weakref.ref[GradientReducer], index: int, parameter: torch.Tensor) -> None:
    reducer = this()
    if reducer is not None:
        reducer._ready(index, parameter)
