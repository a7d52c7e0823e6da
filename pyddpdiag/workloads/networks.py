"""Creates the networks of `archs`, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pyddpdiag.errors import UsageError
from pyddpdiag.workloads.text import CONTEXT


class Block(nn.Module):
    """Convolutions with a shortcut for the input around them. `deep`: 1x1, 3x3, 1x1 instead of two 3x3."""

    def __init__(self, inputs: int, width: int, stride: int, *, deep: bool) -> None:
        super().__init__()
        outputs = 4 * width if deep else width
        if deep:
            layers = [*_conv(inputs, width, 1), nn.ReLU(), *_conv(width, width, 3, stride), nn.ReLU()]
            self.path = nn.Sequential(*layers, *_conv(width, outputs, 1))
        else:
            self.path = nn.Sequential(*_conv(inputs, width, 3, stride), nn.ReLU(), *_conv(width, width, 3))
        same = inputs == outputs and stride == 1
        self.short: nn.Module = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        total: Tensor = self.path(x) + self.short(x)
        return total.relu()


class ResNet(nn.Module):
    """Scores (n, classes) of images (n, 3, h, w); `counts` blocks of each of four widths."""

    def __init__(self, counts: tuple[int, ...], classes: int, *, deep: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
        blocks: list[nn.Module] = []
        inputs = 64
        for stage, count in enumerate(counts):
            width = 64 * 2**stage
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(Block(inputs, width, stride, deep=deep))
                inputs = 4 * width if deep else width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return scores


def resnet18(classes: int) -> ResNet:
    """18 layers, 11.7 million parameters at 1000 classes."""
    return ResNet((2, 2, 2, 2), classes, deep=False)


def resnet50(classes: int) -> ResNet:
    """50 layers, 25.6 million parameters at 1000 classes."""
    return ResNet((3, 4, 6, 3), classes, deep=True)


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


_HEADS = 4


class Layer(nn.Module):
    """Attention to what came before, then a small network per place, each around a shorter way."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(n, places, width) to the same."""
        n, places, width = x.shape
        parts = self.mix(self.before_attention(x)).view(n, places, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, places, width))
        changed: Tensor = x + self.network(self.before_network(x))
        return changed


class Transformer(nn.Module):
    """Scores (n, places, alphabet) of the next character at each place; input (n, places) int64.

    No dropout: a run must not depend on how many random numbers a rank has drawn.
    """

    def __init__(self, alphabet: int, context: int, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(alphabet, width), nn.Embedding(context, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, alphabet)

    def forward(self, characters: Tensor) -> Tensor:
        """See the class."""
        places = torch.arange(characters.shape[1], device=characters.device)
        scores: Tensor = self.scores(
            self.norm(self.layers(self.characters(characters) + self.places(places)))
        )
        return scores


class DigitsNet(nn.Module):
    """A convolutional network for 8 x 8 grey images in 10 classes, 550 thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(1, 32),
            *_convolution(32, 64),
            nn.MaxPool2d(2),
            *_convolution(64, 128),
            *_convolution(128, 128),
            *_convolution(128, 128),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(128 * 2 * 2, 256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
        # torch's default weights shrink the signal by half at every layer; this deep without normalisation,
        # it is lost.
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            else:
                nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """Scores (n, 10) of images (n, 1, 8, 8)."""
        scores: Tensor = self.classifier(self.features(images))
        return scores


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, nn.Module]:
    # No batch normalisation: its statistics are per rank, so the result would depend on the number of ranks.
    return nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), nn.ReLU()


_SMALL_BERT: Final = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


def build(name: str, classes: int) -> nn.Module:
    """The network of that name, in training mode, with weights from torch's random numbers.

    `name`: in `archs.ARCHS`. `classes`: the number of classes; digits always have 10, and an `mlp` returns as many
    numbers as it takes.

    Raises:
        UsageError: a library that builds it is missing.
    """
    return _BUILDERS[name](classes)


def mlp_width(name: str) -> int:
    """How many numbers an `mlp` takes."""
    return _MLP_WIDTHS[name]


def _mlp(width: int) -> nn.Module:
    # Next to no compute per parameter: the step is almost all communication.
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))


def _bert(classes: int, **config: Any) -> nn.Module:
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            "the BERT models are built by the transformers package, which cannot be imported.",
            hint="pip install 'pyddpdiag[models]', or choose another network.",
        ) from error
    # Dropout draws random numbers, which costs time unrelated to communication; it stays, as in training.
    network: nn.Module = transformers.BertForSequenceClassification(
        transformers.BertConfig(num_labels=classes, **config)
    )
    return network.train()


_MLP_WIDTHS: Final = {"mlp": 1024, "mlp_small": 256}
_BUILDERS: Final[dict[str, Callable[[int], nn.Module]]] = {
    "digits-cnn": lambda _: DigitsNet(),
    "resnet18": resnet18,
    "resnet50": resnet50,
    "transformer": lambda classes: Transformer(classes, CONTEXT),
    "mlp": lambda _: _mlp(_MLP_WIDTHS["mlp"]),
    "mlp_small": lambda _: _mlp(_MLP_WIDTHS["mlp_small"]),
    "bert_base": _bert,
    "bert_small": lambda classes: _bert(classes, **_SMALL_BERT),
}
