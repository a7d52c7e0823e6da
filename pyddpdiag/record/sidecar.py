"""The JSON file beside a trace: what the fixed records cannot hold (docs/trace-format.md)."""

from __future__ import annotations

import json
import os
import platform
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil
import torch

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.model import sidecar as schema
from pyddpdiag.model.ending import End, Stay
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.tried import Tried
from pyddpdiag.paths import gloo, lanes_setup, shared_setup
from pyddpdiag.record import interface_facts
from pyddpdiag.record.cpu_quota import CpuQuota
from pyddpdiag.record.debugging import Debugging
from pyddpdiag.record.interface_traffic import InterfaceTraffic
from pyddpdiag.record.owners_file import LAST_S, replace_file
from pyddpdiag.record.training import TrainingWatch
from pyddpdiag.start import environment, marks
from pyddpdiag.system import processes
from pyddpdiag.system.clock import monotonic_ns

# Only what changes how DDP or Gloo behave: an environment may hold secrets.
_ENVIRONMENT = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "GLOO_DEVICE_TRANSPORT",
    "GLOO_SOCKET_IFNAME",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "RANK",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_GLOO_LAZY_INIT",
    "USE_LIBUV",
    "WORLD_SIZE",
)
# How long the training waits for whoever reads the file, and how long it goes on without it where that was in vain.
_TRAINING_S: Final = 0.2
_AGAIN_NS: Final = 10**10
# The first writes come at once; then those at the end of a step take this part of the time at most. With modules or
# groups that are made again and again the file grows, and is due after most steps.
_FIRST_WRITES: Final = 32
_WRITE_SHARE: Final = 0.005
_DTYPES = {1: "float32", 2: "float64", 3: "float16", 4: "bfloat16", 5: "complex64", 6: "complex128"}
# When this is imported, and not when a recorder is opened, maybe in a step: Python starts a program to find it out.
_PLATFORM: Final = platform.platform()


class Sidecar:
    """Writes `rank_<N>.json` as a whole and by rename, so that a reader never sees half of it.

    Any thread may write: that of the training loop, that of a backward pass with a new bucket, or one that
    closes the recorder.
    """

    def __init__(
        self,
        path: Path,
        core: _native.Recorder,
        run_id: bytes,
        rank: int,
        world_size: int,
        gpu_use: Callable[[], GpuUse | None],
        training: TrainingWatch,
    ) -> None:
        self._path = path
        self._gpu_use = gpu_use
        self._core = core
        self._training = training
        self._layouts_found = 0
        self._layouts_missing = False
        self.groups = 0
        """How many process groups it names, or has looked at."""
        self.missing = False
        """Whether it lacks a bucket layout, or could not be written."""
        self._modules: Mapping[int, schema.Module] = {}
        self._closed = False
        self._end: End | None = None
        self._seen: Stay | None = None
        self._trial: Tried | None = None
        self._ended_ns = 0
        self._wanted = False
        self._writes = 0
        self._rests_until_ns = 0
        self._again_ns = 0  # when to write again what could not be written; 0: it could
        # Re-entrant: a signal handler that closes the recorder may run anywhere, on the thread that holds the
        # lock.
        self._lock = threading.RLock()
        self._writing: int | None = None  # the thread that is about to replace the file
        self._known_groups: dict[int, schema.Group] = {}
        self._most_memory = 0
        self._quota = CpuQuota()
        self._traffic = InterfaceTraffic()
        self._debugging = Debugging()
        self._fixed = schema.Sidecar(
            run_id=run_id.hex(),
            rank=rank,
            world_size=world_size,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_started_s=processes.started_at(),
            process_namespace=processes.namespace(),
            platform=_PLATFORM,
            python=platform.python_version(),
            torch=str(torch.__version__),
            pyddpdiag=pyddpdiag.__version__,
            torch_threads=torch.get_num_threads(),
            cores=_cores(),
            machine_cores=os.cpu_count() or 0,
            build_config=_native.build_config(),
            environment={
                name: value for name in _ENVIRONMENT if (value := environment.get(name)) or name in os.environ
            },
            clock=core.clock(),
            interfaces=interface_facts.found(),
            start_up=marks.take(),
        )

    def set_recorded_by(self, name: str, launch: Launch | None = None, framework: str = "") -> None:
        """What made the recorder and the DDP module, if not the script, and the command below which it did; the next
        `write` has it."""
        self._fixed = replace(self._fixed, recorded_by=name, launch=launch, framework=framework)

    @property
    def behind(self) -> bool:
        """Whether it lacks a bucket layout, a process group or what is seen of the training, or was not written."""
        now = monotonic_ns()
        if 0 < self._again_ns <= now:
            return True
        if self._writes >= _FIRST_WRITES and now < self._rests_until_ns:
            return False
        return self._layouts_missing or self._training.due or len(self._core.groups()) != self.groups

    def is_due(self) -> bool:
        """Whether to write now that a new bucket layout appeared: the run may hang or die with this bucket.

        After the first 64, only when their number has doubled, because each write grows with it; the rest is
        `behind` and is written at the end of the step.
        """
        self._layouts_found += 1
        self._layouts_missing = self.missing = True
        return self._layouts_found <= 64 or self._layouts_found & (self._layouts_found - 1) == 0

    def note_end(self, end: End) -> None:
        """What ends the process; the first note counts. The next `write` has it."""
        self._end = self._end or end

    def note_ended(self) -> None:
        """The recorder is closed, or the process ends; the first time counts. The next `write` has it."""
        self._ended_ns = self._ended_ns or monotonic_ns()

    def note_trial(self, trial: Tried) -> None:
        """How a trial of cures stands. The next `write` has it."""
        self._trial = trial

    def note_stay(self, stay: Stay) -> None:
        """Where the process is. The next `write` has it."""
        self._seen = stay

    def write(self, modules: Mapping[int, schema.Module], *, closed: bool) -> None:
        """Replaces the file by one with everything known now.

        Raises:
            OSError: it cannot be written.
        """
        self._modules = modules
        self._closed = self._closed or closed
        if closed:
            self.note_ended()
            if self._trial is not None and self._trial.state == "running":
                why = "The training was over before the trial."
                self._trial = replace(self._trial, state="interrupted", why=why, now="")
        self._wanted = True
        if self._writing == threading.get_ident():
            return  # we interrupt our own writing, which will be repeated
        with self._lock:
            while self._wanted:
                self._writing, begin = threading.get_ident(), monotonic_ns()
                try:
                    self._wanted = False
                    text = json.dumps(schema.to_json(self._content()), indent=1)
                    replace_file(self._path, text, LAST_S if self._ended_ns else _TRAINING_S)
                    self._again_ns, now = 0, monotonic_ns()
                    self._writes += 1
                    self._rests_until_ns = now + int((now - begin) / _WRITE_SHARE)
                except OSError:
                    self._again_ns, self.missing = monotonic_ns() + _AGAIN_NS, True
                    raise
                finally:
                    self._writing = None

    def _content(self) -> schema.Sidecar:
        self._layouts_missing = self.missing = False
        return replace(
            self._fixed,
            memory=self._memory_now(),
            quota=self._quota.now(),
            traffic=self._traffic.now(),
            groups=self._groups(),
            modules=dict(self._modules),
            layouts={
                identity: schema.Layout(module, tuple(parameters), _DTYPES.get(dtype, "other"), index, size)
                for identity, module, index, parameters, size, dtype in self._core.layouts()
            },
            closed=self._closed,
            end=self._end,
            seen=self._seen,
            trial=self._trial,
            gpu=self._gpu_use(),
            training=self._training.facts(),
            debugging=self._debugging.now(),
            ended_ns=self._ended_ns,
        )

    def _memory_now(self) -> dict[str, int]:
        self._most_memory = max(self._most_memory, psutil.Process().memory_info().rss)
        return {"used": self._most_memory, "machine": psutil.virtual_memory().total}

    def _groups(self) -> dict[int, schema.Group]:
        found = self._core.groups()
        self.groups = len(found)
        for identity, name, handle in found:
            # Asked once: at the close the group may have been destroyed.
            if identity not in self._known_groups and handle is not None:
                self._known_groups[identity] = schema.Group(name, handle.name(), tuple(gloo.ranks_of(handle)))
        return {
            identity: replace(
                group,
                shared_memory=shared_setup.outcome(self._core, group.name),
                lanes=lanes_setup.outcome(self._core, group.name),
            )
            for identity, group in self._known_groups.items()
        }


def _cores() -> tuple[int, ...]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 0))
