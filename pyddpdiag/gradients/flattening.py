"""Gradients of many tensors in one buffer: copy, scale, cast and statistics in one pass over memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import FlattenError

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]

# Stores to larger targets bypass the caches. About what one core can hope to keep of a shared last-level
# cache, whose total size says little: measured in docs/performance.md.
STREAMING_ABOVE = 8 * 2**20


@dataclass(frozen=True)
class FlatStatistics:
    """Statistics per tensor, each an array with one element per tensor, in their order.

    They describe the values times the scale, before the cast to the buffer's type.
    """

    sum_squares: Floats
    """Sum of squares, added in double precision; NaN or infinite if any value is."""
    absolute_maximum: Floats
    """The largest magnitude; NaN if any value is; 0 for an empty tensor."""
    non_finite: Integers
    """How many values are infinite or NaN."""
    first_non_finite: Integers
    """Index of the first of them in the flattened tensor; -1 if there is none."""

    @property
    def norm(self) -> float:
        """The 2-norm of all tensors together."""
        return float(np.sqrt(self.sum_squares.sum()))


@dataclass(frozen=True)
class Flat:
    """The result of `flatten`: a one-dimensional buffer, and statistics of the values in it."""

    buffer: torch.Tensor
    stats: FlatStatistics


def flatten(
    tensors: Iterable[torch.Tensor],
    out: torch.Tensor | None = None,
    scale: float = 1.0,
    dtype: torch.dtype | None = None,
) -> Flat:
    """Copies tensors one after another into one buffer, times `scale`, with statistics of each.

    On the CPU this is one pass over memory. It rounds like `tensor.to(dtype)`; the product with the scale is
    taken in f32 (f64 for f64 tensors), like `tensor.float().mul(scale)`. Autograd does not see it.

    Args:
        tensors: dense tensors of f32, f64, f16 or bf16, on one device, of any shapes and strides; a tensor with gaps
            or in another order of dimensions is first copied into its logical order.
        out: a contiguous tensor of one dimension to write to, at least as large as all tensors together.
        scale: a finite factor for every value, such as 1 / world size.
        dtype: the buffer's type; default: that of `out`, or the one that all tensors have.

    Returns:
        The buffer (the beginning of `out`, if given), and statistics per tensor.

    Raises:
        FlattenError: a tensor that cannot be flattened, mixed types without a `dtype`, mixed devices, an `out`
            that is too small, of another type or shares memory with a tensor. Then nothing was written.
    """
    try:
        buffer, sizes, places = _native.flatten(_as_list(tensors), out, scale, dtype, STREAMING_ABOVE)
    except ValueError as error:
        raise _refusal("flatten", error) from None
    (squares, maxima), (counts, firsts) = sizes.numpy(), places.numpy()
    return Flat(buffer, FlatStatistics(squares, maxima, counts, firsts))


def unflatten_(buffer: torch.Tensor, tensors: Iterable[torch.Tensor], scale: float = 1.0) -> None:
    """Copies a buffer back into tensors, one after another, times `scale`: the inverse of `flatten`.

    Args:
        buffer: one dimension, contiguous, exactly as many elements as the tensors have together.
        tensors: as for `flatten`; written in place. Types are cast as there.
        scale: a finite factor for every value.

    Raises:
        FlattenError: as `flatten`, and when two of the tensors share memory.
    """
    try:
        _native.unflatten_(buffer, _as_list(tensors), scale, STREAMING_ABOVE)
    except ValueError as error:
        raise _refusal("unflatten", error) from None


def _as_list(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        raise FlattenError(
            "flatten and unflatten_ take several tensors, not one tensor.", hint="pass a list: [tensor]."
        )
    listed = list(tensors)
    for i, tensor in enumerate(listed):
        if not isinstance(tensor, torch.Tensor):
            raise FlattenError(
                f"tensor {i} is {type(tensor).__name__}, not a tensor.",
                hint="a parameter that took no part in the loss has None for its gradient: leave it out.",
            )
    return listed


def _refusal(what: str, error: ValueError) -> FlattenError:
    message, _, hint = str(error).partition("\n  hint: ")
    rank = f"rank {dist.get_rank()}: " if dist.is_available() and dist.is_initialized() else ""
    return FlattenError(f"{rank}cannot {what}: {message}", hint=hint)
