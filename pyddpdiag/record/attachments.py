"""Which recorder records each DDP module, and how its buckets are summed: by DDP, or by a hook of ours."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native
from pyddpdiag.errors import AlreadyAttachedError, UsageError
from pyddpdiag.paths import setup
from pyddpdiag.paths.options import PathRequest
from pyddpdiag.record import ddp_modules, joined, registered
from pyddpdiag.record.ddp_modules import unwrapped
from pyddpdiag.record.frozen import thawed
from pyddpdiag.record.identities import Identities
from pyddpdiag.record.modules import require_gloo
from pyddpdiag.record.recording import Recording
from pyddpdiag.record.unseen import unseen


class Trial(Protocol):
    """A trial of cures, which knows recorders; they know only how it begins."""

    def begin(self, recorder: Any, ddp: DistributedDataParallel, given: Any) -> None:
        """On a module that was just attached; `given` is torch.compile's of it, or the same."""
        ...


@dataclass
class _Attached:
    """What DDP has of ours."""

    native: _native.Attachment
    recorder: Recording | None  # None: the module was detached
    marks: ddp_modules.ForwardMarks | None = None
    group: dist.ProcessGroup | None = None  # that a script's own registration named
    served: _Served | None = None  # None: the module was detached


@dataclass(frozen=True)
class _Served:
    """How its recorder serves a module."""

    module: _native.Module
    parameters: list[torch.Tensor]
    over: dist.ProcessGroup
    request: PathRequest
    options: _native.PathOptions


# A module keeps its recorder alive, so that its buckets get their names even if the caller drops the
# recorder.
_attached: Identities[DistributedDataParallel, _Attached] = Identities()


def attach(
    recorder: Recording, given: torch.nn.Module, request: PathRequest, trial: Trial | None = None
) -> None:
    """As `Recorder.attach`.

    Raises:
        AlreadyAttachedError: the module has a communication hook, or an open recorder.
    """
    with unseen():
        description = ddp_modules.describe(given)
    ddp = unwrapped(given)
    require_gloo(ddp, recorder.rank)
    known = _attached.get(ddp)
    if known is not None and known.recorder is not None and not known.recorder.closed:
        raise AlreadyAttachedError(
            f"rank {recorder.rank}: this DDP module ({description.name}) is attached to the recorder of "
            f"'{known.recorder.path}'.",
            hint="attach it once; for another recorder, recorder.detach(ddp) or close that one first.",
        )
    if known is None:
        known = _taken_over(recorder.rank, ddp, description)
    if known is not None and known.group is not None:
        description = replace(description, group=known.group)
    if description.reduced_by:
        warnings.warn(
            f"rank {recorder.rank}: torch._dynamo.config.optimize_ddp is '{description.reduced_by}': "
            f"{description.name} reduces in the compiled graph and calls no hook, so no bucket is recorded. "
            "For buckets, make the DDP module with optimize_ddp=True.",
            RuntimeWarning,
            stacklevel=3,
        )
    options = setup.prepare(recorder.core, description.group, request)
    module = recorder.modules.add(description)
    how = (module, description.parameters, options)
    if known is None:
        try:
            with thawed(description.parameters):
                native = _native.Attachment(recorder.core, *how)
        except RuntimeError as error:
            raise AlreadyAttachedError(
                f"rank {recorder.rank}: DDP refused the hook of {description.name}: {error}",
                hint="register no other hook.",
            ) from error
    else:
        native = known.native
        with thawed(description.parameters):
            native.serve(recorder.core, *how)
        if known.marks is not None:
            known.marks.remove()
    marks = ddp_modules.ForwardMarks(given, recorder.core, module, description.looks)
    served = _Served(module, description.parameters, description.group, request, options)
    group = known.group if known is not None else None
    _attached.add(ddp, _Attached(native, recorder, marks, group, served))
    joined.watch(module_of)
    recorder.modules.write_sidecar()
    if trial is not None:
        trial.begin(recorder, ddp, given)


def detach(recorder: Recording, given: object) -> None:
    """As `Recorder.detach`.

    Raises:
        UsageError: no recorder is attached to the module.
    """
    with unseen():
        description = ddp_modules.describe(given)
    ddp = unwrapped(given)
    known = _attached.get(ddp)
    ours = registered.find(ddp) if known is None else None
    if ours is not None:
        _attach_to(ddp, description, ours)
        return
    if known is None or known.recorder is None:
        hint = "attach(ddp) first."
        if known is None and registered.has_hook(ddp):
            hint = "its communication hook is not ours; recorder.pause() ends the recording of one inside timed()."
        raise UsageError(
            f"rank {recorder.rank}: this DDP module ({description.name}) is attached to no recorder.",
            hint=hint,
        )
    known.native.release()
    if known.marks is not None:
        known.marks.remove()
    known.recorder = known.served = None


def is_attached(ddp: DistributedDataParallel) -> bool:
    """Whether a recorder that is still open is attached to it."""
    known = _attached.get(ddp)
    return known is not None and known.recorder is not None and not known.recorder.closed


def module_of(ddp: DistributedDataParallel) -> _native.Module | None:
    """What its recorder knows a module as; None: none is attached to it."""
    known = _attached.get(ddp)
    return None if known is None or known.served is None else known.served.module


def native_module(ddp: DistributedDataParallel) -> _native.Module:
    """What the recorder knows an attached module as."""
    return _serving(ddp)[1].module


def group_of(ddp: DistributedDataParallel) -> dist.ProcessGroup:
    """Over which an attached module's buckets are summed."""
    return _serving(ddp)[1].over


def request_of(ddp: DistributedDataParallel) -> PathRequest:
    """How an attached module's buckets are summed."""
    return _serving(ddp)[1].request


def change_path(ddp: DistributedDataParallel, request: PathRequest) -> None:
    """From the next pass on, an attached module's buckets are summed that way; all ranks call this before it.

    Raises:
        ReductionError: as `setup.prepare`.
    """
    known, served, recorder = _serving(ddp)
    options = setup.prepare(recorder.core, served.over, request)
    with thawed(served.parameters):
        known.native.serve(recorder.core, served.module, served.parameters, options)
    known.served = replace(served, request=request, options=options)


def before_new_reducer(ddp: DistributedDataParallel) -> _native.Attachment:
    """An attached module's reducer is about to be replaced, between two passes: what watches gradients leaves it.

    Returns:
        What served it, for `after_new_reducer` if it comes back.
    """
    native = _serving(ddp)[0].native
    native.release()
    return native


def after_new_reducer(ddp: DistributedDataParallel, served: _native.Attachment | None = None) -> None:
    """It has another reducer: a new one, which nothing of ours watches yet, or one that comes back with `served`."""
    known, now, recorder = _serving(ddp)
    now.module.set_reducer(ddp.reducer)
    how = (recorder.core, now.module, now.parameters, now.options)
    with thawed(now.parameters):
        if served is None:
            served = _native.Attachment(*how)
        else:
            served.serve(*how)
    known.native = served


def _serving(ddp: DistributedDataParallel) -> tuple[_Attached, _Served, Recording]:
    known = _attached.get(ddp)
    if known is None or known.served is None or known.recorder is None:
        raise UsageError(f"this DDP module ({type(ddp.module).__name__}) is attached to no recorder.")
    return known, known.served, known.recorder


def _taken_over(
    rank: int, ddp: DistributedDataParallel, description: ddp_modules.Description
) -> _Attached | None:
    """What serves a module that `attach` does not know; None: it has no hook yet."""
    if not registered.has_hook(ddp):
        return None
    ours = registered.find(ddp)
    if ours is None:
        whose, hint = registered.of_others(ddp)
        raise AlreadyAttachedError(
            f"rank {rank}: this DDP module ({description.name}) has a communication hook already: {whose}.",
            hint=hint,
        )
    if ours.recorder is None or not ours.recorder.closed:
        whom = f"'{ours.recorder.path}'" if ours.recorder is not None else "the one that was opened last"
        raise AlreadyAttachedError(
            f"rank {rank}: this DDP module ({description.name}) has a communication hook already: it records into "
            f"{whom}.",
            hint="for another recorder, recorder.detach(ddp) first.",
        )
    return _attach_to(ddp, description, ours)


def _attach_to(
    ddp: DistributedDataParallel, description: ddp_modules.Description, ours: registered.Registered
) -> _Attached:
    """Detaches a module from the recorder that a script's own registration named."""
    group = ours.group if ours.group is not None else description.group
    attached = _Attached(_native.Attachment(group, description.parameters), None, group=ours.group)
    _attached.add(ddp, attached)
    return attached
