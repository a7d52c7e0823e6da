"""Small models and training steps of the integration tests."""

import torch
from torch import nn


class Branches(nn.Module):
    """Two branches of which one is left out in every other step where `alternate` is set."""

    def __init__(self, alternate: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(12, 24)
        self.left = nn.Linear(24, 24)
        self.right = nn.Linear(24, 24)
        self.head = nn.Linear(24, 5)
        self.alternate = alternate
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.stem(x))
        left_only = self.alternate and self.calls % 2 == 1
        self.calls += 1
        y = self.left(x)
        if not left_only:
            y = y + self.right(x)
        return self.head(torch.tanh(y))


def branches(dtype: torch.dtype, alternate: bool = False) -> Branches:
    """The same weights on every rank and in every call."""
    torch.manual_seed(7)
    return Branches(alternate).to(dtype)


def batch(rank: int, step: int, dtype: torch.dtype, rows: int = 8) -> torch.Tensor:
    """Another batch for every rank and step."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(rows, 12, generator=generator).to(dtype)


def gradient_bytes(module: nn.Module) -> list[bytes]:
    """The gradients' bits, in the order of the parameters."""
    return [
        b"" if p.grad is None else p.grad.detach().reshape(-1).clone().view(torch.uint8).numpy().tobytes()
        for p in module.parameters()
    ]
