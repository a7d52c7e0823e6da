"""Gradients that are views of their bucket, instead of having memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from pyddpdiag import _native
from pyddpdiag.errors import UsageError
from pyddpdiag.gradients.buckets import Bucket
from pyddpdiag.gradients.flattening import STREAMING_ABOVE


class BucketViews:
    """The parts of one bucket that are its parameters' gradients.

    Args:
        bucket: whose buffer it is.
        parameters: all parameters of the reducer, as are `names`.

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
