"""The recorder of one rank: opens its trace, and is the `state` of the communication hooks."""

from __future__ import annotations

import errno
import warnings
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _ddp, _exchange, _exit, _native, _run, compression
from pyddpdiag._sidecar import Sidecar
from pyddpdiag.errors import (
    AlreadyAttachedError,
    NoProcessGroupError,
    NotGlooError,
    RecorderClosedError,
    TraceExistsError,
    TraceFolderError,
    UsageError,
)
from pyddpdiag.sentinel import Mode, Sentinel, require_mode

Batch = TypeVar("Batch")

# Recorders of this process that are open, oldest first: a hook that was registered without one finds it here.
_open: list[weakref.ref[Recorder]] = []


class Recorder:
    """Records one rank's DDP communication into a memory-mapped trace file.

    Make one on every rank after `init_process_group`; no rank waits for another. The trace is
    `folder/rank_<N>.ddptrace` and needs no flush: whatever was recorded is in the file, however the process ends.

    Args:
        folder: the run's folder, the same on all ranks; made if it does not exist. None: a new folder
            `ddptrace-<time>` in the working directory, whose name the ranks agree on.
        process_group: the group for DDP modules that cannot be told from their buckets; default: the world.
        overwrite: replace this rank's trace of an earlier run instead of refusing.
        capacity_mb: size of the trace in MiB (0.0625 to 65536); the oldest records are overwritten when it is full.
        parameter_interval: record when each parameter's gradient became ready in every n-th backward pass
            (only with `attach`); 0 = never, 1 = always.
        statistics_interval: record each bucket's gradient statistics (sum of squares, absolute maximum, non-finite
            values, and a checksum of the result) in every n-th backward pass; 0 = never.
        parameter_statistics: the same for every parameter, in the same passes.
        sentinel: "warn" or "raise" when the ranks' gradients are not finite or do not agree (docs/sentinel.md); the
            same on all ranks. The ranks then make a process group of the sentinel's own.
        sentinel_interval: check in every n-th backward pass.

    Raises:
        NoProcessGroupError: torch.distributed is not initialised.
        TraceExistsError: there is a trace of this rank already, and `overwrite` is not given.
        TraceFolderError: the folder or file cannot be made, or the disk has not enough space.
        UsageError: an argument out of its range.
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
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise NoProcessGroupError(
                "a Recorder needs to know its rank, but torch.distributed is not initialised.",
                hint="make the Recorder after torch.distributed.init_process_group('gloo', ...).",
            )
        if not 0.0625 <= capacity_mb <= 65536:
            raise UsageError(f"capacity_mb must be between 0.0625 and 65536, not {capacity_mb}.")
        for name, interval in (
            ("parameter_interval", parameter_interval),
            ("statistics_interval", statistics_interval),
        ):
            if not 0 <= interval < 2**32:
                raise UsageError(f"{name} must be from 0 (never) to 4294967295, not {interval}.")
        require_mode(sentinel)
        if not 1 <= sentinel_interval < 2**32:
            raise UsageError(f"sentinel_interval must be from 1 to 4294967295, not {sentinel_interval}.")
        _exit.arrange()
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        run = _run.agree(str(folder) if folder is not None else None)
        self.folder = Path(run.folder)
        self.path = self.folder / f"rank_{self.rank}.ddptrace"
        group = process_group if process_group is not None else dist.group.WORLD
        assert group is not None
        _make_folder(self.folder, self.rank)
        self._core = self._open_trace(
            run.run_id,
            overwrite,
            capacity_mb,
            parameter_interval=parameter_interval,
            statistics_interval=statistics_interval,
            parameter_statistics=parameter_statistics,
            sentinel_interval=0 if sentinel == "off" else sentinel_interval,
        )
        self._core.set_default_group(group)
        self._modules: list[tuple[_native.Module, _ddp.Description]] = []
        self._loop: object = None
        self._sidecar = Sidecar(
            self.path.with_suffix(".json"), self._core, run.run_id, self.rank, self.world_size
        )
        try:
            self._sidecar.write(self._modules, closed=False)
        except OSError as error:
            self._core.close()
            raise TraceFolderError(
                f"rank {self.rank}: cannot write '{self.path.with_suffix('.json')}': {error.strerror}",
                hint="check the folder's permissions and that its disk has space.",
            ) from None
        # The core must not keep us alive: the hook keeps the core.
        this = weakref.ref(self)
        self._core.on_layout(lambda: _call(this, "_layout_found"))
        self._core.on_unknown_module(lambda parameters: _call(this, "_identify", parameters))
        self._sentinel = None if sentinel == "off" else Sentinel(self.rank, sentinel)
        if self._sentinel is not None:
            self._core.on_compare(self._sentinel.check)
        _open.append(this)

    def _open_trace(
        self, run_id: bytes, overwrite: bool, capacity_mb: float, **options: Any
    ) -> _native.Recorder:
        try:
            return _native.Recorder(
                path=str(self.path),
                rank=self.rank,
                world_size=self.world_size,
                run_id=run_id,
                capacity_bytes=int(capacity_mb * 2**20),
                overwrite=overwrite,
                **options,
            )
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise TraceExistsError(
                    f"rank {self.rank}: there is a trace already: '{self.path}'.",
                    hint="give each run a folder of its own, or Recorder(..., overwrite=True) to replace it.",
                ) from None
            hint = "check the folder's permissions and that it is on a local disk."
            if error.errno == errno.ENOSPC:
                hint = f"free {capacity_mb:g} MiB, or make the trace smaller with Recorder(..., capacity_mb=...)."
            raise TraceFolderError(f"rank {self.rank}: {error.strerror}", hint=hint) from None

    def attach(
        self,
        ddp: DistributedDataParallel,
        *,
        compress: compression.Compress | None = None,
        error_feedback: bool = False,
    ) -> None:
        """Registers the native hook with a DDP module, before its first backward pass.

        No Python runs per bucket. Gradients are averaged as by torch's builtin all-reduce hook, to the last bit,
        unless `compress` asks for fewer bits. Also records when each parameter's gradient became ready (sampled), when
        the passes began and ended, and when DDP took each bucket back. Several modules may be attached to one
        recorder, each once.

        Args:
            ddp: the module.
            compress: "bf16" or "fp16": f32 and f64 gradients travel in 16 bits (docs/compression.md); the same on
                all ranks.
            error_feedback: add what the last rounding lost to the next step's gradients; costs the memory of the
                gradients once more. Only with `compress`.

        Raises:
            RecorderClosedError: the recorder was closed.
            AlreadyAttachedError: the module has a communication hook already.
            NotGlooError: the module's process group does not reduce its gradients over Gloo.
            UsageError: not a DistributedDataParallel module.
        """
        self._require_open("attach a DDP module to it")
        compress_to = compression.number(compress)
        if error_feedback and compress is None:
            raise UsageError("error_feedback needs compress='bf16' or 'fp16': nothing is lost without it.")
        description = _ddp.describe(ddp)
        self._require_gloo(ddp)
        if ddp._comm_hooks or ddp in _attached:
            raise AlreadyAttachedError(
                f"rank {self.rank}: this DDP module ({description.name}) has a communication hook already.",
                hint="attach a recorder once, and do not register another hook; DDP takes one per module.",
            )
        if compress is not None:
            _exchange.prepare(self._core, description.group)
        module = self._add_module(description)
        try:
            _native.attach(
                self._core, module, ddp.reducer, description.parameters, compress_to, error_feedback
            )
        except RuntimeError as error:
            raise AlreadyAttachedError(
                f"rank {self.rank}: DDP refused the hook of {description.name}: {error}",
                hint="attach before the first backward pass, and register no other hook.",
            ) from error
        _attached[ddp] = self
        if ddp.logger is not None:
            ddp.logger._set_comm_hook_name("pyddpdiag.Recorder.attach")
        _ddp.watch_forward(ddp, self._core, module)
        self._write_sidecar()

    def steps(self, loader: Iterable[Batch]) -> Steps[Batch]:
        """Wraps a loader so that waiting for data and the steps themselves are marked in the trace.

        Args:
            loader: anything that can be iterated over; its batches are passed on untouched.

        Returns:
            An iterable with the loader's `len()`. Steps are counted on from one call to the next.
        """
        self._require_open("mark steps with it")
        return Steps(self, loader)

    def pause(self) -> None:
        """Stops recording; hooks go on reducing gradients. May differ between ranks and cost nothing."""
        self._core.set_paused(True)

    def resume(self) -> None:
        """Records again after `pause`."""
        self._require_open("resume it")
        self._core.set_paused(False)

    def counters(self) -> dict[str, int]:
        """Numbers of the trace: `tickets` given out, `overwritten`, `skipped`, `dropped`, and the `capacity`."""
        return self._core.counters()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def close(self) -> None:
        """Ends the recording. The trace is complete before this; closing only says that the end was orderly."""
        if self._core.closed:
            return
        self._core.close()
        # It holds process groups, whose threads are not to live longer than the training.
        self._sentinel = None
        self._write_sidecar()
        _open[:] = [reference for reference in _open if reference() not in (None, self)]

    def __enter__(self) -> Recorder:
        """The recorder itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the recorder."""
        self.close()

    def __repr__(self) -> str:
        """Rank, file and state."""
        state = "closed" if self.closed else "paused" if self._core.paused else "open"
        return f"<Recorder rank {self.rank} of {self.world_size}, {state}: {self.path}>"

    def _require_open(self, what: str) -> None:
        if self._core.closed:
            raise closed_error(self, what)

    def _require_gloo(self, ddp: DistributedDataParallel) -> None:
        device = next(p for p in ddp.module.parameters() if p.requires_grad).device
        self._require_gloo_group(ddp.process_group, device)

    def _require_gloo_group(self, group: dist.ProcessGroup, device: torch.device) -> None:
        backend = _native.backend_name(group, str(device))
        if backend != "gloo":
            raise NotGlooError(
                f"rank {self.rank}: this DDP module's gradients are on '{device}', which its process group reduces "
                f"with {backend or 'no backend'!r}; pyddpdiag times Gloo.",
                hint="init_process_group('gloo'), or DDP(..., process_group=dist.new_group(backend='gloo')).",
            )

    def _add_module(self, description: _ddp.Description) -> _native.Module:
        module = self._core.add_module(description.group, description.parameters, description.names)
        self._modules.append((module, description))
        if self._sentinel is not None:
            self._sentinel.watch(module.index, description)
        return module

    def _identify(self, parameters: list[torch.Tensor]) -> None:
        found = _ddp.find(parameters)
        if found is not None:
            self._require_gloo(found)
            self._add_module(_ddp.describe(found))

    def _layout_found(self) -> None:
        if self._sidecar.is_due():
            self._write_sidecar()

    def _write_sidecar(self) -> None:
        # In the middle of training, where a full disk or a removed folder must not end it.
        try:
            self._sidecar.write(self._modules, closed=self.closed)
        except OSError as error:
            warnings.warn(
                f"rank {self.rank}: cannot write '{self.path.with_suffix('.json')}' ({error.strerror}); a report of "
                "this run will not know all names.",
                RuntimeWarning,
                stacklevel=3,
            )


class Steps(Generic[Batch]):
    """A loader whose batches are steps; made by `Recorder.steps`."""

    def __init__(self, recorder: Recorder, loader: Iterable[Batch]) -> None:
        self._recorder = recorder
        self._loader = loader

    def __len__(self) -> int:
        """The loader's length; TypeError if it has none."""
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        """The loader's batches, each a step from here to the next."""
        recorder = self._recorder
        core = recorder._core
        batches = iter(self._loader)
        # Whose step is open: a loop that another one has taken over from must not end the other's step.
        loop = object()
        while True:
            recorder._loop = loop
            core.wait_begin()
            try:
                batch = next(batches)
            except StopIteration:
                core.wait_abandoned()
                return
            except BaseException:
                core.wait_abandoned()
                raise
            core.step_begin()
            try:
                yield batch
            finally:
                if recorder._loop is loop:
                    core.step_end()
                if recorder._sidecar.behind:
                    recorder._write_sidecar()


# A module keeps the recorder that was attached to it, so that its buckets get their names whoever forgets it.
_attached: weakref.WeakKeyDictionary[DistributedDataParallel, Recorder] = weakref.WeakKeyDictionary()


def latest_open() -> Recorder | None:
    """The recorder of this process that was opened last and is still open."""
    for reference in reversed(_open):
        recorder = reference()
        if recorder is not None and not recorder.closed:
            return recorder
    return None


def closed_error(recorder: Recorder, what: str) -> RecorderClosedError:
    """The error for a use of a closed recorder."""
    return RecorderClosedError(
        f"rank {recorder.rank}: the recorder of '{recorder.path}' is closed; cannot {what}.",
        hint="keep it open as long as the model trains; to stop recording earlier, call recorder.pause().",
    )


def _make_folder(folder: Path, rank: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceFolderError(
            f"rank {rank}: cannot make the folder '{folder}': {error.strerror}",
            hint="choose a folder that this user may write to.",
        ) from None


def _call(this: weakref.ref[Recorder], method: str, *arguments: Any) -> None:
    recorder = this()
    if recorder is not None:
        getattr(recorder, method)(*arguments)


__all__ = ["Recorder", "Steps", "closed_error", "latest_open"]
