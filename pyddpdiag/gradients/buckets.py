"""How a GradientReducer divides its parameters into buckets, the same on every rank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from pyddpdiag.errors import ReductionError, UsageError

_KNOWN = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass
class Bucket:
    """Parameters whose gradients are reduced together, by their indices, in the order of the buffer."""

    index: int
    parameters: list[int]
    shapes: dict[int, torch.Size]
    buffer: torch.Tensor = field(repr=False)


def named(
    params: Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
) -> tuple[list[str], list[torch.Tensor]]:
    """Names and tensors of the parameters that need a gradient.

    Raises:
        UsageError: there are none, one is given twice, or something is not a parameter.
    """
    names, parameters = [], []
    for i, item in enumerate(params):
        name, parameter = item if isinstance(item, tuple) else (f"parameter {i}", item)
        if not isinstance(parameter, torch.Tensor):
            raise UsageError(
                f"a GradientReducer takes parameters, not {type(parameter).__name__}.",
                hint="GradientReducer(model.parameters()).",
            )
        if not parameter.requires_grad:
            continue
        if not parameter.is_leaf or parameter.dtype not in _KNOWN or parameter.layout is not torch.strided:
            raise UsageError(
                f"'{name}' cannot be reduced: it must be a dense leaf tensor of float32, float64, float16 or "
                f"bfloat16, not {parameter.dtype}.",
                hint="complex parameters can be kept as torch.view_as_real().",
            )
        names.append(str(name))
        parameters.append(parameter)
    if not parameters:
        raise UsageError("there is no parameter that needs a gradient.", hint="was the model frozen?")
    if len({id(p) for p in parameters}) != len(parameters):
        raise UsageError("a parameter was given twice.", hint="model.parameters() gives shared ones once.")
    devices = {p.device for p in parameters}
    if len(devices) > 1:
        raise UsageError(
            f"the parameters are on several devices: {', '.join(sorted(map(str, devices)))}.",
            hint="make one GradientReducer for each device.",
        )
    return names, parameters


def in_buckets(parameters: list[torch.Tensor], cap_mb: float, dtype: torch.dtype | None) -> list[Bucket]:
    """Buckets from the last parameter to the first, each of one type, with their memory.

    Raises:
        UsageError: an argument is out of its range.
    """
    if not 0 < cap_mb < 2**20:
        raise UsageError(f"bucket_cap_mb must be above 0, in MiB, not {cap_mb}.")
    if dtype is not None and dtype not in _KNOWN:
        raise UsageError(f"dtype must be float32, float64, float16 or bfloat16, not {dtype}.")
    cap = cap_mb * 2**20
    done: list[tuple[torch.dtype, list[int]]] = []
    open_: dict[torch.dtype, list[int]] = {}
    bytes_: dict[torch.dtype, int] = {}
    for i in reversed(range(len(parameters))):
        kind = dtype or parameters[i].dtype
        size = parameters[i].numel() * kind.itemsize
        if open_.get(kind) and bytes_[kind] + size > cap:
            done.append((kind, open_.pop(kind)))
        bytes_[kind] = size + (bytes_[kind] if kind in open_ else 0)
        open_.setdefault(kind, []).append(i)
    done += open_.items()
    return [
        Bucket(
            index,
            members,
            {i: parameters[i].shape for i in members},
            torch.zeros(
                sum(parameters[i].numel() for i in members), dtype=kind, device=parameters[members[0]].device
            ),
        )
        for index, (kind, members) in enumerate(done)
    ]


def check_same_on_all_ranks(
    buckets: list[Bucket], parameters: list[torch.Tensor], group: dist.ProcessGroup, way: str = ""
) -> None:
    """Compares a fingerprint of the buckets, and the way they take, with those of the other ranks; waits for all.

    Raises:
        ReductionError: they differ.
    """
    layout = [(str(b.buffer.dtype), [(i, tuple(s)) for i, s in b.shapes.items()]) for b in buckets]
    digest = hashlib.sha256(repr((layout, way)).encode()).digest()[:8]
    mine = torch.tensor([int.from_bytes(digest, "little", signed=True), len(parameters)])
    everyone = [torch.zeros_like(mine) for _ in range(group.size())]
    dist.all_gather(everyone, mine, group=group)
    others = [rank for rank, theirs in enumerate(everyone) if not torch.equal(theirs, everyone[0])]
    if others:
        raise ReductionError(
            f"rank {group.rank()}: the ranks disagree on their parameters: {others} of the group differ from its "
            f"rank 0 (parameters per rank: {', '.join(str(int(e[1])) for e in everyone)}).",
            hint="make the GradientReducer on every rank with the same model, bucket_cap_mb, dtype, shared_memory and "
            "number of lanes.",
        )
