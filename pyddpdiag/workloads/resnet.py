"""Residual networks (He and others, 2015) in plain torch."""

from __future__ import annotations

from torch import Tensor, nn


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
