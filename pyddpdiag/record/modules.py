"""The modules that one recorder knows: the core counts them, the sentinel watches them, the sidecar names them."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native
from pyddpdiag.model import sidecar as schema
from pyddpdiag.model.ending import End, Stay
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.tried import Tried
from pyddpdiag.paths import gloo
from pyddpdiag.record import ddp_modules, gpu
from pyddpdiag.record.sentinel import Sentinel
from pyddpdiag.record.sidecar import Sidecar
from pyddpdiag.record.training import TrainingWatch
from pyddpdiag.record.unseen import unseen
from pyddpdiag.system.handlers import by_handler, quietly

NEVER_USED: Final = 64
"""How many unused parameters are named at most."""


class Modules:
    """The DDP modules and reducers of one recorder, in the order in which they became known.

    Args:
        core: the native recorder.
        rank: of this process.
        trace: path of the trace.
        run_id: of the run.
        world_size: of the run.
        sentinel: watches every module; None: there is none.

    `training` is what is seen of the training besides its gradients.

    Raises:
        OSError: the sidecar cannot be written.
    """

    def __init__(
        self,
        core: _native.Recorder,
        rank: int,
        trace: Path,
        run_id: bytes,
        world_size: int,
        sentinel: Sentinel | None,
    ) -> None:
        self._core = core
        self._rank = rank
        self._path = trace.with_suffix(".json")
        self._process = os.getpid()
        self.closed = False
        self._sentinel = sentinel
        # Not the modules themselves: the recorder must keep no module's memory alive.
        self._known: dict[int, schema.Module] = {}
        self._searching: dict[int, _native.Module] = {}  # for unused parameters
        self._gpu: gpu.Watch | None = None
        self.training = TrainingWatch(core)
        self._sidecar = Sidecar(self._path, core, run_id, rank, world_size, self._gpu_use, self.training)
        self._sidecar.write(self._known, closed=False)

    def add(self, description: ddp_modules.Description) -> _native.Module:
        """Makes a module known; `write_sidecar` then names it."""
        with unseen():
            return self._add(description)

    def _add(self, description: ddp_modules.Description) -> _native.Module:
        module = self._core.add_module(
            description.group, description.parameters, description.names, description.reducer
        )
        self._known[module.index] = ddp_modules.in_sidecar(description, module.group_id)
        if description.ddp.get("find_unused_parameters"):
            module.watch_used(len(description.parameters))
            self._searching[module.index] = module
        self.training.add(module, description)
        if self._sentinel is not None:
            self._sentinel.watch(module.index, description)
        if self._gpu is None and description.parameters:
            self._gpu = gpu.watch(description.parameters[0].device)
        return module

    def add_owner_of(self, parameters: list[torch.Tensor]) -> None:
        """Finds the DDP module whose bucket holds `parameters` and makes it known, if there is one.

        Raises:
            NotGlooError: it does not reduce over Gloo.
        """
        ddp = ddp_modules.find(parameters)
        if ddp is not None:
            require_gloo(ddp, self._rank)
            with unseen():
                description = ddp_modules.describe(ddp)
            self.add(description)

    def set_recorded_by(self, name: str, launch: Launch | None = None, framework: str = "") -> None:
        """What made the recorder, if not the script (`model.sidecar.Sidecar`); the next sidecar tells it."""
        self._sidecar.set_recorded_by(name, launch, framework)

    def layout_found(self) -> None:
        """Called when a new bucket layout appears."""
        if self._sidecar.is_due():
            self.write_sidecar()

    def catch_up(self, groups: int) -> None:
        """Writes the sidecar if something is missing in it; called at the end of a step, with so many known groups."""
        sidecar = self._sidecar
        # As a rule nothing is.
        if (sidecar.missing or self.training.due or groups != sidecar.groups) and sidecar.behind:
            self.write_sidecar()

    def note_end(self, end: End) -> None:
        """Notes what ends the process."""
        self._sidecar.note_end(end)
        self.write_sidecar()

    def note_ended(self) -> None:
        """Notes when the process came to its end, if the recorder was not closed before. Never raises."""
        if os.getpid() == self._process and not self._core.closed:
            self._sidecar.note_ended()
            with quietly:
                self._sidecar.write(self._known, closed=False)

    def note_trial(self, trial: Tried) -> None:
        """Notes how a trial of cures stands."""
        self._sidecar.note_trial(trial)
        self.write_sidecar()

    def note_stay(self, stay: Stay) -> None:
        """Notes where the process is while it records nothing."""
        self._sidecar.note_stay(stay)
        self.write_sidecar()

    def close(self) -> None:
        """Releases the sentinel, whose process groups have threads, and writes the last sidecar."""
        self.closed = True
        self._sentinel = None
        if self._gpu is not None:
            self._gpu.stop()
        self.training.close()
        self.write_sidecar()

    def _gpu_use(self) -> GpuUse | None:
        return None if self._gpu is None else self._gpu.use(self._rank)

    def write_sidecar(self) -> None:
        """Replaces the sidecar. If that fails it warns: neither may end the training."""
        if os.getpid() != self._process:
            return  # a forked child: the file is its parent's
        for index, module in self._searching.items():
            used = module.used()
            never = used.pop("never_used")
            if used["passes"]:
                self._known[index] = replace(
                    self._known[index], used=used, never_used=tuple(never[:NEVER_USED])
                )
        try:
            self._sidecar.write(self._known, closed=self._core.closed)
        except Exception as error:
            if by_handler(error):
                raise
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            with suppress(RuntimeWarning):
                warnings.warn(
                    f"rank {self._rank}: cannot write '{self._path}' ({reason}); a report of this run will not know "
                    "all names.",
                    RuntimeWarning,
                    stacklevel=3,
                )


def require_gloo(ddp: DistributedDataParallel, rank: int) -> None:
    """Refuses a DDP module whose gradients are not reduced over Gloo.

    Raises:
        NotGlooError: that is the case.
    """
    gloo.require(ddp.process_group, ddp.device, rank)
