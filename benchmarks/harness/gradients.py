"""Lists of gradients for the flattening benchmarks, and the best that torch offers for the same result."""

from __future__ import annotations

from collections.abc import Callable

import torch


def resnet50_like() -> list[torch.Tensor]:
    """161 tensors, 25.6 million values, 102 MB: the shapes of ResNet-50's parameters."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inner = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [(width, inner, 1, 1), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            shapes += [(4 * width, width, 1, 1), (4 * width,), (4 * width,)]
            if block == 0:
                shapes += [(4 * width, inner, 1, 1), (4 * width,), (4 * width,)]
            inner = 4 * width
    shapes += [(1000, 2048), (1000,)]
    return [torch.randn(shape) for shape in shapes]


def small() -> list[torch.Tensor]:
    """1000 tensors of 4 KiB."""
    return [torch.randn(1024) for _ in range(1000)]


LISTS = {"resnet50": resnet50_like, "1000x4KiB": small}


def memcpy(tensors: list[torch.Tensor]) -> Callable[[], None]:
    """One plain copy of as many bytes of f32."""
    source = torch.cat([t.flatten() for t in tensors])
    target = torch.empty_like(source)

    def run() -> None:
        target.copy_(source)

    return run


def torch_foreach(tensors: list[torch.Tensor], dtype: torch.dtype, scale: float) -> Callable[[], None]:
    """Copy, scale, norm per tensor, one largest magnitude for all, into memory allocated before.

    It gives less than `flatten` does (one maximum, no index of what is not finite): the cheapest that is comparable.
    """
    out = torch.empty(sum(t.numel() for t in tensors), dtype=dtype)
    views, offset = [], 0
    for tensor in tensors:
        views.append(out[offset : offset + tensor.numel()].view(tensor.shape))
        offset += tensor.numel()

    def run() -> None:
        torch._foreach_copy_(views, tensors)
        out.mul_(scale)
        torch._foreach_norm(views)
        torch.aminmax(out)

    return run
