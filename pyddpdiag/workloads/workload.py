"""What is trained on what: a network of `archs` with its data, of which the digits come with the package.

They have 8 x 8 pixels; digits.txt says where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyddpdiag.errors import TrainError
from pyddpdiag.workloads import networks
from pyddpdiag.workloads.archs import arch_of
from pyddpdiag.workloads.images import ImageSamples, find_images, require_pillow
from pyddpdiag.workloads.samples import Samples, TensorSamples
from pyddpdiag.workloads.text import CONTEXT, TextSamples, read_text

FILE = Path(__file__).with_name("digits.npz")
TEST_SAMPLES = 360
# A constant of this workload, not a setting: runs with different seeds are judged on the same test images.
SPLIT_SEED = 1797


@dataclass(frozen=True)
class Digits:
    """Images (n, 1, 8, 8) float32, normalised by the training images; labels (n,) int64."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits() -> Digits:
    """Loads and splits the data set.

    Raises:
        TrainError: the package's file of images is missing or damaged.
    """
    pixels, labels = _read(FILE)
    order = np.random.Generator(np.random.PCG64(SPLIT_SEED)).permutation(len(labels))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    mean, deviation = pixels[train].mean(), pixels[train].std()
    images = torch.from_numpy(((pixels - mean) / deviation).astype(np.float32)).reshape(-1, 1, 8, 8)
    targets = torch.from_numpy(labels.astype(np.int64))
    return Digits(images[train], targets[train], images[test], targets[test])


def _read(file: Path) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Pixels (n, 64) float64 from 0 to 16, and labels (n,) uint8."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as found:
            return found["images"].astype(np.float64), found["labels"]
    except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
        raise TrainError(
            f"The images of the default workload cannot be read from '{file}': {error}",
            hint="install pyddpdiag again: this file comes with it.",
        ) from error


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


def prepare(arch: str, data: str | None, *, image_size: int, seed: int) -> Workload:
    """The network of that name with its data.

    Args:
        arch: a name in `archs.TRAINED`.
        data: folder of images or file of text, as the network needs it.
        image_size: images are cut to this many pixels on each side.
        seed: decides random changes to the samples.

    Raises:
        DataError: the data cannot be used.
        TrainError: a package that the data needs is not installed.
        UsageError: the network cannot be trained on such data.
    """
    kind = arch_of(arch).kind
    if kind == "digits":
        digits = load_digits()
        return _workload(
            arch,
            "handwritten digits",
            TensorSamples(digits.train_images, digits.train_labels),
            TensorSamples(digits.test_images, digits.test_labels),
            tuple("0123456789"),
        )
    path = Path(data or "")
    if kind == "images":
        require_pillow()
        files = find_images(path)
        return _workload(
            arch,
            f"images of {len(files.classes)} classes in {path.name}",
            ImageSamples(files.train, image_size, seed),
            ImageSamples(files.test, image_size, seed),
            files.classes,
        )
    text = read_text(path)
    return _workload(
        arch,
        f"pieces of {CONTEXT} characters of {path.name}",
        TextSamples(text.train, seed),
        TextSamples(text.test, seed),
        tuple(text.alphabet),
        _adam,
    )


def _workload(
    arch: str,
    dataset: str,
    train: Samples,
    test: Samples,
    classes: tuple[str, ...],
    optimiser: Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer] = _sgd,
) -> Workload:
    return Workload(dataset, train, test, classes, lambda: networks.build(arch, len(classes)), optimiser)
