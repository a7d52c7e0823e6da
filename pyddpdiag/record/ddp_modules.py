"""What we read from a DDP module: its parameters in order, its process group, its forward pass."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import compiler
from torch.compiler import is_dynamo_compiling
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native
from pyddpdiag.errors import UsageError
from pyddpdiag.model import sidecar as schema
from pyddpdiag.record.callers import passes_here
from pyddpdiag.record.held import tensors_in
from pyddpdiag.record.module_tree import inside, modules_in, parameters_in
from pyddpdiag.record.pass_looks import PassLooks
from pyddpdiag.record.reduced import parameters_of
from pyddpdiag.system.handlers import by_handler

_graph = torch._C._get_tracing_state

LOOKED_AT: Final = 16
"""Passes in a row, of eight times as many, that are looked at as they begin: a step that accumulates is seen whole."""


@dataclass(frozen=True)
class Description:
    """A DDP module's parameters that take part in reduction, in the order of named_parameters()."""

    name: str
    group: dist.ProcessGroup
    bucket_cap_mb: float
    names: list[str]
    parameters: list[torch.Tensor]
    reducer: object = None  # DDP's own; None: a GradientReducer has none
    reduced_by: str = ""  # what reduces in place of a hook
    ddp: Mapping[str, int] = field(default_factory=dict)  # as in the sidecar
    owner: weakref.ref[torch.nn.Module] | None = None  # the DDP module
    looks: PassLooks = field(default_factory=PassLooks)


def unwrapped(given: object) -> DistributedDataParallel:
    """The DDP module itself, of which `given` may be torch.compile's.

    Raises:
        UsageError: it is not a DistributedDataParallel module.
    """
    # Only another one is asked: DDP of the script's own class may answer to each name.
    found = given if issubclass(type(given), DistributedDataParallel) else getattr(given, "_orig_mod", given)
    if not isinstance(found, DistributedDataParallel):
        raise UsageError(
            f"expected a DistributedDataParallel module, not {type(given).__name__}.",
            hint="wrap the model first: ddp = DistributedDataParallel(model); recorder.attach(ddp).",
        )
    return found


def describe(given: object) -> Description:
    """Reads a DDP module.

    Raises:
        UsageError: it is not a DistributedDataParallel module.
    """
    ddp = unwrapped(given)
    reduced = parameters_of(ddp)
    return Description(
        name=type(inside(ddp)).__name__,
        group=ddp.process_group,
        bucket_cap_mb=ddp.bucket_bytes_cap / 2**20,
        names=[name for name, _ in reduced],
        parameters=[one for _, one in reduced],
        reducer=ddp.reducer,
        reduced_by="python_reducer" if getattr(ddp, "_use_python_reducer", False) else "",
        ddp=_settings(ddp),
        owner=weakref.ref(ddp),
    )


def _settings(ddp: DistributedDataParallel) -> dict[str, int]:
    """What decides how much DDP does beside reducing gradients."""
    names = ("find_unused_parameters", "static_graph", "broadcast_buffers", "gradient_as_bucket_view")
    buffers = list(getattr(ddp, "modules_buffers", ()))
    layers = [type(layer) for _, layer in modules_in(inside(ddp))]
    return {
        **{name: int(bool(getattr(ddp, name, False))) for name in names},
        "buffers": len(buffers),
        "buffer_bytes": sum(buffer.numel() * buffer.element_size() for buffer in buffers),
        "sync_batch_norms": sum(issubclass(layer, torch.nn.SyncBatchNorm) for layer in layers),
    }


def in_sidecar(description: Description, group: int) -> schema.Module:
    """What the sidecar holds of a module in the process group with this identity; no tensor among it."""
    return schema.Module(
        description.name,
        group,
        description.bucket_cap_mb,
        tuple(description.names),
        tuple(tuple(parameter.shape) for parameter in description.parameters),
        tuple(str(parameter.dtype).removeprefix("torch.") for parameter in description.parameters),
        description.reduced_by,
        description.ddp,
    )


def find(parameters: list[torch.Tensor]) -> DistributedDataParallel | None:
    """The DDP module that owns a bucket's parameters.

    torch gives a Python hook the bucket but not the module, and the module has the names. This searches all
    live objects, which takes some 10 ms; it is called once per module.
    """
    wanted = {id(parameter) for parameter in parameters}
    for candidate in gc.get_objects():
        # Not isinstance: it runs code of objects that pretend to be of a class, such as lazy proxies.
        if issubclass(type(candidate), DistributedDataParallel) and any(
            id(parameter) in wanted for _, parameter in parameters_in(inside(candidate))
        ):
            return candidate  # type: ignore[no-any-return]
    return None


class ForwardMarks:
    """Marks the forward pass of an attached module and, from its outputs on, the backward pass; until removed.

    Args:
        given: the module as the script has it: torch.compile's, whose hooks are not compiled, or DDP's own.
        core: the recorder's.
        module: what the recorder knows it as.
        looks: keeps what is seen of its passes.
    """

    def __init__(
        self,
        given: torch.nn.Module,
        core: _native.Recorder,
        module: _native.Module,
        looks: PassLooks,
    ) -> None:
        marks = _Marks(core, module, looks)
        self._handles = [
            given.register_forward_pre_hook(_Before(marks), with_kwargs=True),
            given.register_forward_hook(_After(marks)),
        ]

    def remove(self) -> None:
        """No more marks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _Marks:
    """What the forward hooks of an attached module do. They run in every step, so keep the Python here to a minimum.

    While torch.compile or torch.export traces them, or torch.jit.trace, for which a tensor's size is a tensor, they do
    nothing: a call into the native module would break the graph. Those of torch.compile's own module are not traced and
    mark its passes. They ask as torch.compiler.is_compiling() does, which takes two functions for it.
    """

    __slots__ = ("begin", "end", "looks", "module", "passes")

    def __init__(self, core: _native.Recorder, module: _native.Module, looks: PassLooks) -> None:
        self.begin, self.end = _native.quick_forward(core, module)
        self.module = module
        self.looks = looks
        self.passes = 0

    def look_at_backward(self, ddp: Any, *, local: bool, often: bool) -> Callable[[], None]:
        """Sees that this pass is local, or whether it runs backward under `no_sync`, though not forward."""
        looks, native, this = self.looks, self.module, weakref.ref(ddp)

        def begins() -> None:
            try:
                module = this()
                if module is None or is_dynamo_compiling() or compiler._is_compiling_flag:
                    return
                fresh = looks.begins(local=local) if often else None
                if local:
                    looks.note_local(native.passes)
                elif fresh is not None:
                    looks.looked += 1
                    looks.inside += not module.require_backward_grad_sync
                    looks.fresh += fresh
            except Exception as error:
                if by_handler(error):
                    raise

        return begins


class _Hook:
    """One of them."""

    __slots__ = ("marks",)

    def __init__(self, marks: _Marks) -> None:
        self.marks = marks

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of the module, by pickle or deepcopy, marks nothing, and is read where this package is not installed:
        # what does nothing with any arguments is Python's own.
        return (getattr, (nullcontext(), "__exit__"))


class _Before(_Hook):
    __slots__ = ()

    def __call__(self, ddp: Any, arguments: Any, named: Any) -> None:
        marks = self.marks
        if is_dynamo_compiling() or compiler._is_compiling_flag or _graph() is not None:
            return
        # A look never ends a training. `suppress` would take as long as the look.
        try:
            if torch.is_grad_enabled():
                batches = marks.looks.batches
                if batches.passes + 1 < batches.due:
                    batches.passes += 1
                else:
                    batches.look((arguments, named))
                if marks.passes < 8:
                    passes_here(sys._getframe())
            marks.begin(ddp.require_backward_grad_sync)
        except Exception as error:
            if by_handler(error):
                raise


class _After(_Hook):
    __slots__ = ()

    def __call__(self, ddp: Any, _: Any, output: Any) -> None:
        marks = self.marks
        if is_dynamo_compiling() or compiler._is_compiling_flag or _graph() is not None:
            return
        try:
            outputs = output if type(output) is torch.Tensor else list(tensors_in(output))
            marks.passes += 1
            local = not ddp.require_backward_grad_sync
            often = marks.passes % (8 * LOOKED_AT) <= LOOKED_AT
            begins = marks.look_at_backward(ddp, local=local, often=often) if local or often else None
            marks.end(outputs, begins)
        except Exception as error:
            if by_handler(error):
                raise
