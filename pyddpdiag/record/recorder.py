"""The recorder of one rank: opens its trace, and is the `state` of the communication hooks."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.errors import RecorderClosedError, TraceFolderError, UsageError
from pyddpdiag.paths.options import Compress, SharedMemory, path_request
from pyddpdiag.record import (
    agreement,
    arguments,
    attachments,
    end_mark,
    latest,
    opening,
    orderly_exit,
)
from pyddpdiag.record.bucket_hook import RecorderHook
from pyddpdiag.record.collector import CollectorWatch
from pyddpdiag.record.copied import CopiedRecorder
from pyddpdiag.record.destination import destination_of
from pyddpdiag.record.lines import LineSampler
from pyddpdiag.record.modules import Modules
from pyddpdiag.record.phase import marked_phase
from pyddpdiag.record.sentinel import Mode, Sentinel
from pyddpdiag.record.steps import Loop, MarkedSteps, Steps
from pyddpdiag.record.watchdog import Watchdog
from pyddpdiag.record.whereabouts import Whereabouts
from pyddpdiag.remote import held
from pyddpdiag.start import marks

marks.note("loaded_ns")  # torch is: what comes now is the script's set-up

Batch = TypeVar("Batch")


class Recorder:
    """Records one rank's DDP communication into a memory-mapped trace file.

    Create one on every rank after `init_process_group`; no rank waits for another. The trace is
    `folder/rank_<N>.ddptrace` and needs no flush: everything recorded is in the file, however the process
    ends.

    Args:
        folder: the run's folder, the same on all ranks; made if it does not exist. If it holds a run, the ranks agree
            on the next free name beside it, as `today-2`. None: a new folder `ddptrace-<time>` in the working
            directory. A URL, as s3://bucket/run: one whose files `close` brings there (docs/several-machines.md).
        process_group: the group for DDP modules that cannot be identified from their buckets; default: the
            world.
        overwrite: replace this rank's trace of an earlier run in this folder.
        capacity_mb: size of the trace in MiB (0.0625 to 65536); the oldest records are overwritten when it is full.
        parameter_interval: record when each parameter's gradient became ready in every n-th backward pass
            (only with `attach`); 0 = never, 1 = always.
        statistics_interval: record each bucket's gradient statistics (sum of squares, absolute maximum, non-finite
            values, and a checksum of the result) in every n-th backward pass, and after 16 times in every
            4n-th unless n is 1; 0 = never.
        parameter_statistics: the same for every parameter, in the same passes.
        sentinel: "warn" or "raise" when the ranks' gradients are not finite or do not agree (docs/sentinel.md); the
            same on all ranks. The ranks then create a separate process group for the sentinel.
        sentinel_interval: check in every n-th backward pass.
        watchdog_s: print what `pyddpdiag hang` says (docs/hang.md) when an operation of this rank has been in flight,
            or nothing was recorded, for so many seconds; None = never.
        weights_interval: fingerprint every parameter once in so many backward passes, some in each pass, to find
            weights that differ between ranks, and as much rarer after 16 times; 0 = never.
        sample_connections: record twice a second what the system knows about this process's TCP connections, so that
            slow, delayed and lossy links can be named.
        lines: look at the main thread's Python stack, some 20 times a second at first, so that a late rank's line can
            be named. No source code is kept.

    Raises:
        NoProcessGroupError: torch.distributed is not initialised.
        TraceExistsError: this rank has a trace where the first rank saw none, in a URL's local folder, or in ".".
        TraceFolderError: the folder or file cannot be created, or the disk does not have enough space.
        UsageError: an argument is out of its range.

    `core` and `modules` are for this package: hooks and reducers record through them. So are
    `closed_by_error`: whether an exception was on its way when it was closed; and `run_id`: the same on all ranks.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        process_group: dist.ProcessGroup | None = None,
        overwrite: bool = False,
        capacity_mb: float = 32,
        parameter_interval: int = 16,
        statistics_interval: int = 16,
        parameter_statistics: bool = False,
        sentinel: Mode = "off",
        sentinel_interval: int = 64,
        watchdog_s: float | None = None,
        weights_interval: int = 16,
        sample_connections: bool = True,
        lines: bool = True,
    ) -> None:
        opening.require_group()
        arguments.require(
            capacity_mb,
            {
                "parameter_interval": parameter_interval,
                "statistics_interval": statistics_interval,
                "weights_interval": weights_interval,
            },
            sentinel,
            sentinel_interval,
            watchdog_s,
        )
        orderly_exit.arrange()
        self._process = os.getpid()
        self.closed_by_error = False
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        opening.require_text(folder, self.rank)
        run = agreement.agree(folder, overwrite=overwrite)
        self.folder, self.run_id = Path(run.folder), run.run_id.hex()
        self._destination = destination_of(folder, self.folder, self.rank)
        self.path = self.folder / f"rank_{self.rank}.ddptrace"
        group = process_group if process_group is not None else dist.group.WORLD
        assert group is not None
        opening.make_folder(self.folder, self.rank)
        self.core = opening.open_trace(
            self.path,
            self.rank,
            self.world_size,
            run.run_id,
            overwrite=overwrite,
            capacity_mb=capacity_mb,
            parameter_interval=parameter_interval,
            statistics_interval=statistics_interval,
            parameter_statistics=parameter_statistics,
            sentinel_interval=0 if sentinel == "off" else sentinel_interval,
            sample_connections=sample_connections,
            weights_interval=weights_interval,
        )
        end_mark.watch(self, self.core, self.rank, self.path)
        self.core.set_default_group(group)
        watcher = None if sentinel == "off" else Sentinel(self.rank, sentinel)
        try:
            self.modules = Modules(self.core, self.rank, self.path, run.run_id, self.world_size, watcher)
        except OSError as error:
            self.core.close()
            raise TraceFolderError(
                f"rank {self.rank}: cannot write '{self.path.with_suffix('.json')}': {error.strerror}",
                hint="check the folder's permissions and that its disk has space.",
            ) from None
        self._loop = Loop()
        self._marked_steps = MarkedSteps(self.core, self.modules, self._loop)
        self._collector = CollectorWatch(self.core)
        # A recorder that is dropped without close() must not be called for ever.
        weakref.finalize(self, self._collector.close).atexit = False
        # The core must not keep us alive: the hook keeps the core.
        this, modules = weakref.ref(self), weakref.ref(self.modules)
        self.core.on_layout(lambda: _call(modules, "layout_found"))
        self.core.on_lost(lambda: _call(this, "_trace_lost"))
        self.core.on_unknown_module(lambda parameters: _call(modules, "add_owner_of", parameters))
        if watcher is not None:
            self.core.on_compare(watcher.check)
        latest.opened(self)
        paused = weakref.WeakMethod(self._is_paused)
        self._whereabouts = Whereabouts(self.core, weakref.WeakMethod(self.modules.note_stay))
        self._watchdog = None if watchdog_s is None else Watchdog(self.path, self.rank, watchdog_s, paused)
        self._lines = LineSampler(self.path, run.run_id, self.core, stacks=lines)

    def attach(
        self,
        ddp: DistributedDataParallel,
        *,
        compress: Compress | None = None,
        error_feedback: bool = False,
        shared_memory: SharedMemory = "off",
        lanes: Sequence[str] = (),
        trial: attachments.Trial | None = None,
    ) -> None:
        """Records a DDP module, from its next forward pass on.

        DDP's own all-reduces are observed, and nothing is changed: gradients have the bits of plain DDP. `compress`,
        `shared_memory` and `lanes` give DDP a native hook instead, with the bits of torch's builtin one unless
        `compress` asks for fewer. No Python runs per bucket. A recorder may have several modules, each once; a module
        that was detached, or whose recorder was closed, may get another.

        Args:
            ddp: the module, or torch.compile's of it.
            compress: "bf16" or "fp16": f32 and f64 gradients travel in 16 bits (docs/compression.md); on all ranks.
            error_feedback: add what the last rounding lost to the next step's gradients; costs the memory of the
                gradients once more. Only with `compress`.
            shared_memory: "auto": where all ranks of the module's group share memory, or those of each host, they
                average their gradients there, and only between hosts over Gloo and compressed
                (docs/shared-memory.md); Gloo otherwise. "require": an error where they do not. "off": Gloo.
            lanes: interfaces of this host that carry parts of each bucket at once; not with the others (docs/lanes.md).
            trial: a `pyddpdiag.Trial`: tries cures while the module trains (docs/cures.md).

        Raises:
            ReductionError: ranks did not take part in the set-up, do not share memory and must, or have unfit lanes.
            RecorderClosedError: the recorder was closed.
            AlreadyAttachedError: the module already has a communication hook, or an open recorder.
            NotGlooError: the module's process group does not reduce its gradients over Gloo.
            UsageError: not a DistributedDataParallel module.
        """
        self._require_open("attach a DDP module to it")
        attachments.attach(self, ddp, path_request(compress, error_feedback, shared_memory, lanes), trial)

    def detach(self, ddp: DistributedDataParallel) -> None:
        """Ends the recording of a module that a recorder was attached to, between two backward passes.

        DDP is then as it was; a hook of ours that the script registered itself averages like torch's builtin one. A
        recorder can be attached again. It need not be this one that is attached: in a notebook the name of an
        earlier one may be lost. Gradients that are compressed or go through shared memory: on all ranks together.

        Raises:
            UsageError: no recorder is attached to it.
        """
        attachments.detach(self, ddp)

    def hook(
        self,
        *,
        compress: Compress | None = None,
        error_feedback: bool = False,
        shared_memory: SharedMemory = "off",
        lanes: Sequence[str] = (),
    ) -> Callable[..., Any]:
        """A communication hook for `ddp.register_comm_hook`, with the options of `attach`.

        `attach` records more and costs less per bucket. This is for programs that register a hook
        themselves::

            ddp.register_comm_hook(None, recorder.hook(compress="bf16"))

        Args:
            compress, error_feedback: as in `attach`.
            shared_memory, lanes: as in `attach`; tried when the hook first runs.

        Returns:
            A hook that records into this recorder. Register it with this recorder, None, or a ProcessGroup to
                reduce over as its state.

        Raises:
            RecorderClosedError: the recorder was closed.
            UsageError: the options don't fit.
        """
        self._require_open("make a hook of it")
        return RecorderHook(self, path_request(compress, error_feedback, shared_memory, lanes))

    def steps(self, loader: Iterable[Batch]) -> Steps[Batch]:
        """Wraps a loader so that waiting for data and the steps themselves are marked in the trace.

        Args:
            loader: any iterable; its batches are passed on unchanged.

        Returns:
            An iterable with the loader's `len()`. Steps are numbered continuously from one call to the next.
        """
        self._require_open("mark steps with it")
        return Steps(self.core, self.modules, self._loop, loader)

    def step(self) -> AbstractContextManager[None]:
        """Marks one step of a loop that has no loader to wrap, as a context manager::

            with recorder.step():
                loss = train_on(next_batch())

        What lies between two steps counts as neither.

        Raises:
            RecorderClosedError: the recorder was closed.
        """
        self._require_open("mark a step with it")
        return self._marked_steps.one()

    def mark_step(self) -> None:
        """Marks the end of one step and the begin of the next, for loops that a framework owns.

        Call it once before the first step and at the end of each; the step that the last call begins is not counted.

        Raises:
            RecorderClosedError: the recorder was closed.
        """
        self._require_open("mark a step with it")
        self._marked_steps.mark()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Marks a part of the program between steps that is not training: a checkpoint, an evaluation.

        The report then names a pause by it and does not count it as the rank's own time::

            with recorder.phase("checkpoint"):
                torch.save(...)

        An error inside ends the phase, too. Each nested phase is recorded separately.

        Args:
            name: up to 31 bytes of it are kept.

        Raises:
            RecorderClosedError: the recorder was closed.
            UsageError: the name is empty.
        """
        if not name:
            raise UsageError("a phase needs a name.")
        self._require_open(f"mark the phase '{name}'")
        return marked_phase(self.core, name)

    def pause(self) -> None:
        """Stops recording; hooks keep reducing gradients. Ranks may pause independently."""
        self.core.set_paused(True)

    def resume(self) -> None:
        """Records again after `pause`."""
        self._require_open("resume it")
        self.core.set_paused(False)

    def counters(self) -> dict[str, int]:
        """Numbers of the trace: `tickets` given out, `overwritten`, `skipped`, `dropped`, and the `capacity`."""
        return self.core.counters()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.core.closed

    def close(self) -> None:
        """Ends the recording. The trace is complete before this; closing marks that the end was orderly.

        The file is cut to what it holds, and can be removed when what is in flight has ended. Not in a forked child.
        """
        if self.core.closed or not self.is_ours():
            return
        self.closed_by_error = sys.exc_info()[1] is not None
        self._marked_steps.close()
        if self._watchdog is not None:
            self._watchdog.close()
        self._whereabouts.close()
        self._lines.close()
        self._collector.close()
        self.core.close()
        held.cut(self.path)
        end_mark.closed(self.path)
        self.modules.close()
        latest.closed(self)
        if self._destination is not None:
            self._destination.bring()

    def __enter__(self) -> Recorder:
        """The recorder itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the recorder."""
        self.close()

    def __reduce__(self) -> tuple[type[CopiedRecorder], tuple[int, str]]:
        """A copy records nothing, however it is made: torch.save, pickle, deepcopy."""
        return (CopiedRecorder, (self.rank, str(self.path)))

    def __repr__(self) -> str:
        """Rank, file and state."""
        state = "closed" if self.closed else "paused" if self.core.paused else "open"
        if not self.is_ours():
            state = f"of process {self._process}"
        return f"<Recorder rank {self.rank} of {self.world_size}, {state}: {self.path}>"

    def _require_open(self, what: str) -> None:
        if self.core.closed or not self.is_ours():
            raise self.closed_error(what)

    def closed_error(self, what: str) -> RecorderClosedError:
        """For this package: the error for `what`, done with a closed recorder or in a forked child of its process."""
        return opening.unusable(self.path, self.rank, None if self.is_ours() else self._process, what)

    def _is_paused(self) -> bool:
        return self.core.paused

    def is_ours(self) -> bool:
        """For this package: whether this process opened the recorder, and is not a forked child of that one."""
        return os.getpid() == self._process

    def _trace_lost(self) -> None:
        opening.warn_of_loss(self.path, self.rank)


def _call(this: weakref.ref[Any], method: str, *arguments: Any) -> None:
    found = this()
    if found is not None:
        getattr(found, method)(*arguments)
