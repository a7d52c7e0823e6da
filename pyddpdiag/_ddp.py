"""What we ask of a DDP module: its parameters in order, its process group, its forward pass."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native
from pyddpdiag.errors import UsageError


@dataclass(frozen=True)
class Description:
    """A DDP module's parameters that take part in reduction, in the order of named_parameters()."""

    name: str
    group: dist.ProcessGroup
    bucket_cap_mb: float
    names: list[str]
    parameters: list[torch.Tensor]


def describe(ddp: DistributedDataParallel) -> Description:
    """Reads a DDP module.

    Raises:
        UsageError: it is not a DistributedDataParallel module.
    """
    if not isinstance(ddp, DistributedDataParallel):
        raise UsageError(
            f"expected a DistributedDataParallel module, not {type(ddp).__name__}.",
            hint="wrap the model first: ddp = DistributedDataParallel(model); recorder.attach(ddp).",
        )
    reduced = [
        (n, p) for n, p in ddp.module.named_parameters() if p.requires_grad and not hasattr(p, "_ddp_ignored")
    ]
    return Description(
        name=type(ddp.module).__name__,
        group=ddp.process_group,
        bucket_cap_mb=ddp.bucket_bytes_cap / 2**20,
        names=[name for name, _ in reduced],
        parameters=[parameter for _, parameter in reduced],
    )


def find(parameters: list[torch.Tensor]) -> DistributedDataParallel | None:
    """The DDP module that owns a bucket's parameters.

    torch gives a Python hook the bucket but not the module, and the module has the names. All live objects are
    looked through, which takes some 10 ms; asked once per module.
    """
    wanted = {id(parameter) for parameter in parameters}
    for candidate in gc.get_objects():
        # Not isinstance: it runs code of objects that pretend a class, such as lazy proxies.
        if issubclass(type(candidate), DistributedDataParallel) and any(
            id(parameter) in wanted for parameter in candidate.module.parameters()
        ):
            return candidate  # type: ignore[no-any-return]
    return None


class _Marks:
    """Forward hooks of an attached module. Run in every step: no more Python here than must be."""

    __slots__ = ("core", "module")

    def __init__(self, core: _native.Recorder | None, module: _native.Module | None) -> None:
        self.core = core
        self.module = module

    def before(self, ddp: Any, _: Any) -> None:
        if self.module is not None:
            _native.forward_begin(self.module, ddp.require_backward_grad_sync)

    def after(self, _: Any, __: Any, output: Any) -> None:
        if self.core is not None and self.module is not None:
            outputs = [output] if type(output) is torch.Tensor else list(_tensors(output))
            _native.forward_end(self.core, self.module, outputs)

    def __reduce__(self) -> tuple[type[_Marks], tuple[None, None]]:
        # A copy of the module, by pickle or deepcopy, has no hook of ours and marks nothing.
        return (_Marks, (None, None))


def watch_forward(ddp: DistributedDataParallel, core: _native.Recorder, module: _native.Module) -> None:
    """Marks the forward pass, and from its outputs on the backward pass, of an attached module."""
    marks = _Marks(core, module)
    ddp.register_forward_pre_hook(marks.before)
    ddp.register_forward_hook(marks.after)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value)
    elif hasattr(output, "__dataclass_fields__"):
        for field in output.__dataclass_fields__:
            yield from _tensors(getattr(output, field))
