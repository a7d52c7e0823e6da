"""How a GradientReducer divides its parameters into buckets, the same on every rank."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import ReductionError, UsageError
from pyddpdiag.gradients.flattening import STREAMING_ABOVE

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


class BucketViews:
    """The parts of one bucket that are its parameters' gradients.

    `bucket`: whose buffer it is. `parameters`: all parameters of the reducer, as are `names`.

    Raises:
        UsageError: the bucket is of another type than one of its parameters.
    """

    def __init__(self, bucket: Bucket, parameters: list[torch.Tensor], names: list[str]) -> None:
        self._buffer = bucket.buffer
        self._parameters = [parameters[i] for i in bucket.parameters]
        self._views: list[torch.Tensor] = []
        begin = 0
        for i, parameter in zip(bucket.parameters, self._parameters, strict=True):
            if parameter.dtype is not bucket.buffer.dtype:
                raise UsageError(
                    f"the gradient of '{names[i]}' ({parameter.dtype}) cannot be a view of a bucket of "
                    f"{bucket.buffer.dtype}.",
                    hint="leave out dtype, or gradient_as_bucket_view.",
                )
            view = self._buffer[begin : begin + parameter.numel()].view(parameter.shape)
            begin += parameter.numel()
            if parameter.is_contiguous():
                # Dimensions of size 1 may have any stride, but optimizers are faster where it is the parameter's.
                view = view.as_strided(parameter.shape, parameter.stride())
            self._views.append(view)

    def fill(self, gradients: list[torch.Tensor], scale: float) -> Callable[[], None]:
        """Scales the gradients into the bucket, and makes those views of it that are contiguous.

        Returns:
            What copies the averages back to the others.
        """
        if all(gradient is view for gradient, view in zip(gradients, self._views, strict=True)):
            # Zeroed in place before this pass, or not at all: they were accumulated where they belong.
            self._buffer.mul_(scale)
            return partial(_copy, [])
        try:
            self._flatten(gradients, scale)
        except ValueError:
            # It refuses gradients that lie in the bucket already, before it writes anything.
            there = self._buffer.untyped_storage().data_ptr()
            self._flatten(
                [g.clone() if g.untyped_storage().data_ptr() == there else g for g in gradients], scale
            )
        others = []
        for parameter, gradient, view in zip(self._parameters, gradients, self._views, strict=True):
            if gradient.is_contiguous():
                parameter.grad = view
            else:
                others.append((gradient, view))
        return partial(_copy, others)

    def _flatten(self, gradients: list[torch.Tensor], scale: float) -> None:
        _native.flatten(gradients, self._buffer, scale, None, STREAMING_ABOVE)


def _copy(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for gradient, average in pairs:
        gradient.copy_(average)
