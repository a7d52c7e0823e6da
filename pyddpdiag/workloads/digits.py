"""scikit-learn's handwritten digits: 1797 real images of 8 x 8, shipped with the library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyddpdiag.errors import TrainError

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
        TrainError: scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise TrainError(
            "The default workload reads its images from scikit-learn, which cannot be imported.",
            hint="pip install scikit-learn",
        ) from error
    pixels, labels = datasets.load_digits(return_X_y=True)
    order = np.random.Generator(np.random.PCG64(SPLIT_SEED)).permutation(len(labels))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    mean, deviation = pixels[train].mean(), pixels[train].std()
    images = torch.from_numpy(((pixels - mean) / deviation).astype(np.float32)).reshape(-1, 1, 8, 8)
    targets = torch.from_numpy(labels.astype(np.int64))
    return Digits(images[train], targets[train], images[test], targets[test])
