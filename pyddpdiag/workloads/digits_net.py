"""The default network: small enough for two cores, deep enough that DDP has several buckets to overlap."""

from __future__ import annotations

from torch import Tensor, nn


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
