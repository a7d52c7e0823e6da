"""What is trained on what: a network of `archs` with its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from pyddpdiag.train.archs import arch_of
from pyddpdiag.train.data import load_digits
from pyddpdiag.train.images import ImageSamples, find_images, require_pillow
from pyddpdiag.train.models import DigitsNet
from pyddpdiag.train.resnet import resnet18, resnet50
from pyddpdiag.train.samples import Samples, TensorSamples
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.train.text import CONTEXT, TextSamples, read_text
from pyddpdiag.train.transformer import Transformer


def _sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=5e-4)


def _adam(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)


@dataclass(frozen=True)
class Workload:
    """Data, and how to make the network and its optimiser.

    Attributes:
        dataset: what the samples are, for people: "handwritten digits".
        train: to learn from.
        test: to be judged by.
        classes: what the network tells apart, in the order of its scores.
        build: makes the network, with weights from torch's random numbers.
        optimiser: made from parameters and learning rate.
    """

    dataset: str
    train: Samples
    test: Samples
    classes: tuple[str, ...]
    build: Callable[[], nn.Module]
    optimiser: Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer] = _sgd


def prepare(settings: TrainSettings) -> Workload:
    """The workload of the settings. Raises `DataError` if the data cannot be used."""
    kind = arch_of(settings.arch).kind
    if kind == "digits":
        digits = load_digits()
        return Workload(
            "handwritten digits",
            TensorSamples(digits.train_images, digits.train_labels),
            TensorSamples(digits.test_images, digits.test_labels),
            tuple("0123456789"),
            DigitsNet,
        )
    path = Path(settings.data or "")
    if kind == "images":
        require_pillow()
        files = find_images(path)
        build = resnet18 if settings.arch == "resnet18" else resnet50
        return Workload(
            f"images of {len(files.classes)} classes in {path.name}",
            ImageSamples(files.train, settings.image_size, settings.seed),
            ImageSamples(files.test, settings.image_size, settings.seed),
            files.classes,
            lambda: build(len(files.classes)),
        )
    text = read_text(path)
    return Workload(
        f"pieces of {CONTEXT} characters of {path.name}",
        TextSamples(text.train, settings.seed),
        TextSamples(text.test, settings.seed),
        tuple(text.alphabet),
        lambda: Transformer(len(text.alphabet), CONTEXT),
        _adam,
    )
