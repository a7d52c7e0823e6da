"""A user's own training function, run on every rank with the recorder at hand."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.errors import UsageError
from pyddpdiag.train.events import EpochDone, TrainResult
from pyddpdiag.train.inputs import split_script
from pyddpdiag.train.probes import Probe, ddp_arguments, probes
from pyddpdiag.train.rank_session import Session

T = TypeVar("T")
_MODULE = "pyddpdiag_user_script"


class Script:
    """What the function is called with. The process group is up, over Gloo.

    Attributes:
        rank: of this process.
        world_size: number of ranks.
        device: that this rank should use.
    """

    def __init__(self, session: Session, device: torch.device) -> None:
        self.rank = session.place.rank
        self.world_size = session.place.world_size
        self.device = device
        self.history: list[EpochDone] = []
        self.model: DistributedDataParallel | None = None
        self._session = session
        self._reported_at = time.perf_counter()
        self._open: AbstractContextManager[Probe] | None = None
        self._probe: Probe | None = None

    def wrap(self, module: nn.Module, **options: object) -> DistributedDataParallel:
        """The module on this rank's device, in DDP, with the hook of --hook. `options` go to DDP.

        Raises:
            UsageError: it was called before.
        """
        if self.model is not None:
            raise UsageError(
                f"rank {self.rank}: wrap() was called twice.",
                hint="attach a second model to a recorder of yours.",
            )
        settings = self._session.settings
        ids = [self.device] if self.device.type == "cuda" else None
        options = {"device_ids": ids, **ddp_arguments(self._session), **options}
        self.model = DistributedDataParallel(module.to(self.device), **options)  # type: ignore[arg-type]
        trace, watchdog_s = self._session.trace, settings.watchdog_s
        self._open = probes(self.model, settings.averaging, trace, settings.force, watchdog_s)
        self._probe = self._open.__enter__()
        return self.model

    def steps(self, loader: Iterable[T]) -> Iterable[T]:
        """The loader's batches, each marked as a step in the trace.

        Raises:
            UsageError: `wrap` was not called before.
        """
        if self._probe is None:
            raise UsageError(
                f"rank {self.rank}: steps() was called before wrap().", hint="wrap the model first."
            )
        return self._probe.steps(loader)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Marks a part of the program that is not training in the trace: a checkpoint, an evaluation. After `wrap`.

        Raises:
            UsageError: `wrap` was not called yet.
        """
        if self._probe is None:
            raise UsageError(
                f"rank {self.rank}: phase() was called before wrap().", hint="wrap the model first."
            )
        return self._probe.phase(name)

    def epoch_done(self, train_loss: float, test_loss: float, accuracy: float) -> None:
        """Reports the end of an epoch: a line on the screen (rank 0's), and an entry in the result."""
        now = time.perf_counter()
        self.history.append(
            EpochDone(len(self.history), train_loss, test_loss, accuracy, now - self._reported_at)
        )
        self._reported_at = now
        if self.rank == 0:
            self._session.tell(self.history[-1])

    def close(self) -> None:
        """Closes the recorder; not called when the function failed, so that the trace shows the failure."""
        if self._open is not None:
            self._open.__exit__(None, None, None)


def run_script(session: Session, device: torch.device) -> TrainResult:
    """Loads the function that --script names and calls it.

    Raises:
        UsageError: the file or the function is missing.
    """
    torch.manual_seed(session.settings.seed)
    function = load(session.settings.script or "")
    script = Script(session, device)
    begin = time.perf_counter()
    function(script)
    seconds = time.perf_counter() - begin
    script.close()
    model = script.model
    return TrainResult(
        world_size=script.world_size,
        hook=session.settings.averaging.label,
        trace=session.trace if model is not None else None,
        parameters=sum(p.numel() for p in model.parameters()) if model is not None else 0,
        buckets=0,
        history=tuple(script.history),
        seconds=seconds,
        dataset=str(session.settings.script),
    )


def load(text: str) -> Callable[[Script], object]:
    """The function that `text` names.

    Raises:
        UsageError: the file or the function is missing.
    """
    path, name = split_script(text)
    if not path.is_file():
        raise UsageError(f"--script: there is no file {path}.")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--script: {path} is not a Python file.", hint="its name must end with .py.")
    module = importlib.util.module_from_spec(spec)
    # Like `python FILE`: its neighbours can be imported, and its definitions can be pickled.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(
            f"--script: {path} has no function {name}().",
            hint=f"define `def {name}(script): ...`, or name another by FILE:FUNCTION.",
        )
    found: Callable[[Script], object] = function
    return found
