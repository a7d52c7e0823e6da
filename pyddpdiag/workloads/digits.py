"""Handwritten digits: 1797 real images of 8 x 8, shipped with the package (digits.txt says where they come from)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyddpdiag.errors import TrainError

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
