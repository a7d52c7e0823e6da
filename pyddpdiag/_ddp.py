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


def watch_forward(ddp: DistributedDataParallel, core: _native.Recorder, module: _native.Module) -> None:
    """Marks the forward pass, and from its outputs on the backward pass, of an attached module."""

    # Runs in every step: no more Python here than must be.
    forward_begin, forward_end, tensor = _native.forward_begin, _native.forward_end, torch.Tensor

    def before(_: torch.nn.Module, __: Any) -> None:
        forward_begin(module, ddp.require_backward_grad_sync)

    def after(_: torch.nn.Module, __: Any, output: Any) -> None:
        forward_end(core, module, [output] if type(output) is tensor else list(_tensors(output)))

    ddp.register_forward_pre_hook(before)
    ddp.register_forward_hook(after)


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
