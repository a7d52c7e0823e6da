"""Applies a run's cures in one rank, and says what is applied and what is not. Training goes on either way."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch.distributed as dist
from torch.utils.data import IterableDataset

from pyddpdiag.cures import processes
from pyddpdiag.cures.options import Cures, overridden
from pyddpdiag.model.run_options import PATH
from pyddpdiag.output import say
from pyddpdiag.paths import gathering, shared_setup

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from pyddpdiag.record.recorder import Recorder

_INTERFACES: Final = "GLOO_SOCKET_IFNAME"


class Applied:
    """The cures of this process's DDP modules."""

    def __init__(self, cures: Cures) -> None:
        self.cures = cures
        self._said: set[str] = set()
        self._begun = False

    def before_group(self) -> None:
        """A process group is about to be made: Gloo reads its interfaces now."""
        names = ",".join(self.cures.interfaces)
        had = os.environ.get(_INTERFACES, "")
        if names and had != names:
            self._note(f"the script sets {_INTERFACES}={had}; --interface {names} is used instead.")
            os.environ[_INTERFACES] = names

    def arguments(
        self, make: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """What DistributedDataParallel is made with, in place of what the script gives."""
        given, named, notes = overridden(make, arguments, options, self.cures.ddp_arguments)
        self._begin()
        for each in notes:
            self._note(each)
        return given, named

    def loader_arguments(
        self, make: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """What a DataLoader is made with, in place of what the script gives."""
        workers = self.cures.num_workers
        data = options.get("dataset", arguments[1] if len(arguments) > 1 else None)
        if workers is None or isinstance(data, IterableDataset):
            # Each worker of a stream reads all of it, unless the script shares it out.
            if workers is not None:
                self._note("--num-workers is not applied to a loader of an IterableDataset.")
            return arguments, options
        given, named, notes = overridden(make, arguments, options, {"num_workers": workers})
        for each in notes:
            self._note(each)
        return given, named

    def path_for(self, ddp: DistributedDataParallel, *, over_gloo: bool, obstacle: str) -> dict[str, Any]:
        """The options of `Recorder.attach` for a module that is about to train for the first time.

        `over_gloo`: whether it reduces over Gloo; the same on all ranks, who then need not ask each other.
        `obstacle`: why no hook of ours can serve it in this rank; empty: one can.

        Returns:
            The options; empty where not all ranks can take them.
        """
        self._set_threads()
        wanted = self.cures.path
        if not wanted:
            return {}
        reason = _why_not(ddp.process_group, obstacle) if over_gloo else obstacle
        if not reason:
            return wanted
        options = self.cures.options()
        names = " and ".join(name for name in PATH if name in options and name != "--error-feedback")
        verb = "are" if " and " in names else "is"
        self._note(f"{names} {verb} not applied to {type(ddp.module).__name__}: {reason.rstrip('.')}.")
        return {}

    def attached(self, recorder: Recorder, ddp: DistributedDataParallel) -> None:
        """A module was attached."""
        found = shared_setup.outcome(recorder.core, ddp.process_group.group_name)
        if self.cures.shared_memory == "auto" and found not in ("", shared_setup.USED):
            self._note(f"the ranks average over Gloo and not in shared memory: {found.rstrip('.')}.")

    def _begin(self) -> None:
        """The first module: what concerns the whole process."""
        if self._begun or not dist.is_initialized():
            return
        self._begun = True
        if dist.get_rank() == 0:
            applied = " ".join(f"{name} {value}".strip() for name, value in self.cures.options().items())
            why = self.cures.changed_bits(dist.get_world_size())
            same = "The training's bits stay the same"
            if self.cures.shared_memory != "off" and dist.get_world_size() > 2:
                same += ", if all ranks are on one host and gradients are float32 or float64"
            bits = f"The training's bits change: {'; '.join(why)}." if why else f"{same}."
            self._say(f"applying {applied}. {bits}")
        self._set_threads()
        group = dist.group.WORLD
        if self.cures.pin_ranks and group is not None:
            self._note(processes.pin(group))

    def _set_threads(self) -> None:
        if self.cures.threads is not None:
            self._note(processes.use_threads(self.cures.threads))

    def _note(self, text: str) -> None:
        """Says a sentence once in this rank; nothing if it is empty."""
        if text and text not in self._said:
            self._said.add(text)
            self._say(text)

    @staticmethod
    def _say(text: str) -> None:
        rank = dist.get_rank() if dist.is_initialized() else os.environ.get("RANK", "?")
        say(f"pyddpdiag run: rank {rank}: {text}", sys.stderr)


def _why_not(group: dist.ProcessGroup, ours: str) -> str:
    """Why not all ranks can; empty: they can.

    `group`: over Gloo; all of its ranks call this, for the same modules in the same order. `ours`: why this rank
    cannot; empty: it can.
    """
    try:
        with gathering.meet(group, "cures", " ".join(ours.split())) as meeting:
            brought = meeting.values
    except RuntimeError as error:
        return f"not all ranks could agree on it: {error}"
    if ours:
        return ours
    return next((f"rank {rank} cannot: {why}" for rank, why in enumerate(brought) if why), "")
