"""The networks that are trained, small enough for a step of milliseconds on one core."""

from __future__ import annotations

import torch
from torch import nn

CLASSES = 10


class Transformer(nn.Module):
    """A small encoder over 32 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 256, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(96, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(self.embed(x)).mean(1))
        return y


def _mlp() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, CLASSES))


def _conv() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(64 * 36, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
    )


def _deep() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(20):
        layers += [nn.Linear(224, 224), nn.LayerNorm(224), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(224, CLASSES))


def _thin() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(40):
        layers += [nn.Linear(128, 128), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, CLASSES))


class Recurrent(nn.Module):
    """An LSTM over 12 steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.LSTM(48, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(x)[0][:, -1])
        return y


class Words(nn.Module):
    """A table of words that is nearly all of the network: one gradient, one bucket."""

    def __init__(self, words: int, *, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(words, 64, sparse=sparse)
        self.body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(self.table(x).mean(1))
        return y


def _front(inputs: int) -> nn.Module:
    """Most of it is its first layer, whose gradient comes last."""
    layers: list[nn.Module] = [nn.Linear(inputs, 256), nn.ReLU()]
    for _ in range(8):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, CLASSES))


def _batchnorm(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(16):
        layers += [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


_BUILD = {"mlp": _mlp, "conv": _conv, "thin": _thin, "deep": _deep, "transformer": Transformer}
_BUILD |= {"lstm": lambda: Recurrent(96), "lstm wide": lambda: Recurrent(160)}
_BUILD |= {"batchnorm": lambda: _batchnorm(96), "batchnorm wide": lambda: _batchnorm(144)}
_BUILD |= {"embedding": lambda: Words(20000), "embedding wide": lambda: Words(30000)}
_BUILD |= {"sparse": lambda: Words(20000, sparse=True), "sparse wide": lambda: Words(30000, sparse=True)}
_BUILD |= {"front": lambda: _front(4096), "front wide": lambda: _front(6144)}
_WORDS = {
    "transformer": 64,
    "embedding": 20000,
    "embedding wide": 30000,
    "sparse": 20000,
    "sparse wide": 30000,
}
# Factors that bring all networks to a similar time per step.
_SHAPES: dict[str, tuple[float, tuple[int, ...]]] = {
    "mlp": (2.0, (512,)),
    "conv": (0.25, (3, 24, 24)),
    "thin": (4.0, (128,)),
    "deep": (2.0, (224,)),
    "transformer": (0.25, (32,)),
    "lstm": (0.5, (12, 48)),
    "lstm wide": (0.25, (12, 48)),
    "batchnorm": (2.0, (96,)),
    "batchnorm wide": (1.0, (144,)),
    "front": (1.0, (4096,)),
    "front wide": (1.0, (6144,)),
    "embedding": (1.0, (16,)),
    "embedding wide": (1.0, (24,)),
    "sparse": (2.0, (16,)),
    "sparse wide": (2.0, (24,)),
}


class WithUnused(nn.Module):
    """A network with a layer beside it that only every third step uses."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.side = nn.Linear(CLASSES, CLASSES)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x)
        self.calls += 1
        return self.side(y) if self.calls % 3 == 0 else y  # type: ignore[no-any-return]


def build(name: str, *, unused: bool) -> nn.Module:
    """The network of that name, with the same weights everywhere."""
    torch.manual_seed(7)
    body = _BUILD[name]()
    return WithUnused(body) if unused else body


def sample(name: str, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of inputs and targets: `batch` times the network's own factor."""
    factor, shape = _SHAPES[name]
    size = (max(4, round(batch * factor)), *shape)
    if name in _WORDS:
        x = torch.randint(0, _WORDS[name], size, generator=generator)
    else:
        x = torch.randn(size, generator=generator)
    return x, torch.randint(0, CLASSES, size[:1], generator=generator)
