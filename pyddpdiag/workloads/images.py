"""A folder of images, one folder per class: `DIR/train/<class>/*`, and `DIR/val/<class>/*` if there is one.

Pillow reads them; torchvision is not needed. Finding the files needs neither torch nor Pillow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyddpdiag.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
# Without DIR/val, every fifth training image is kept for the test.
_HELD_OUT = 5
# The usual values for photographs (ImageNet's), per channel; any fixed values would do.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


@dataclass(frozen=True)
class ImageFiles:
    """The files found: the classes by name, and (file, class) of each image."""

    classes: tuple[str, ...]
    train: tuple[tuple[Path, int], ...]
    test: tuple[tuple[Path, int], ...]


def find_images(folder: Path) -> ImageFiles:
    """The images of `folder`.

    Raises:
        DataError: it holds no classes, or a class holds no image.
    """
    train_folder = folder / "train"
    if not train_folder.is_dir():
        raise DataError(
            f"There is no folder {train_folder}.", hint="put the images into DIR/train/<class>/ and name DIR."
        )
    classes = _classes(train_folder)
    if len(classes) < 2:
        raise DataError(
            f"{train_folder} holds {len(classes)} class folders, but at least 2 are needed.",
            hint="put the images of each class into a folder of its own there.",
        )
    train = _files(train_folder, classes)
    if (folder / "val").is_dir():
        unknown = sorted(set(_classes(folder / "val")) - set(classes))
        if unknown:
            raise DataError(
                f"{folder / 'val'} has a class that {train_folder} has not: {unknown[0]}.",
                hint="classes are the names of the folders; they must be those of the training images.",
            )
        test = _files(folder / "val", _classes(folder / "val"), classes)
    else:
        order = np.random.Generator(np.random.PCG64(len(train))).permutation(len(train))
        held = set(order[: max(1, len(train) // _HELD_OUT)].tolist())
        test = tuple(one for i, one in enumerate(train) if i in held)
        train = tuple(one for i, one in enumerate(train) if i not in held)
    return ImageFiles(classes, train, test)


def require_pillow() -> None:
    """Makes sure that images can be read.

    Raises:
        DataError: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise DataError(
            "Images are read by Pillow, which is not installed.", hint="pip install pillow"
        ) from error


def _classes(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")))


def _files(
    folder: Path, classes: tuple[str, ...], numbering: tuple[str, ...] | None = None
) -> tuple[tuple[Path, int], ...]:
    found: list[tuple[Path, int]] = []
    for name in classes:
        number = (numbering or classes).index(name)
        files = sorted(p for p in (folder / name).rglob("*") if p.suffix.lower() in SUFFIXES)
        if not files:
            raise DataError(
                f"The class folder {folder / name} holds no image.",
                hint=f"remove the folder, or put images into it ({', '.join(sorted(SUFFIXES))}).",
            )
        found += [(path, number) for path in files]
    return tuple(found)


@dataclass(frozen=True)
class ImageSamples:
    """Images, read on demand: (n, 3, size, size) float32, normalised; their classes (n,) int64."""

    files: tuple[tuple[Path, int], ...]
    size: int
    seed: int

    def __len__(self) -> int:
        return len(self.files)

    def fetch(self, chosen: npt.NDArray[np.int64], epoch: int | None) -> tuple[Tensor, Tensor]:
        """See `Samples.fetch`; with an epoch, a random cut and flip.

        Raises:
            DataError: an image cannot be read.
        """
        import torch

        pixels = np.empty((len(chosen), 3, self.size, self.size), np.float32)
        for row, index in enumerate(chosen.tolist()):
            change = None
            if epoch is not None:
                change = np.random.Generator(np.random.PCG64([self.seed, epoch, index]))
            pixels[row] = self._read(self.files[index][0], change)
        labels = np.array([self.files[index][1] for index in chosen.tolist()], np.int64)
        return torch.from_numpy(pixels), torch.from_numpy(labels)

    def _read(self, path: Path, change: np.random.Generator | None) -> npt.NDArray[np.float32]:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as image:
                # Decode JPEG at a fraction of its size if that is enough: decoding is most of a loader's
                # time.
                image.draft("RGB", (2 * self.size, 2 * self.size))
                cut = _cut(image.convert("RGB"), self.size, change)
        except (
            OSError,
            SyntaxError,
            ValueError,
            UnidentifiedImageError,
            Image.DecompressionBombError,
        ) as error:
            raise DataError(
                f"The image {path} cannot be read: {error}.",
                hint="it may be cut off or no image at all: replace or remove it.",
            ) from error
        values = (np.asarray(cut).astype(np.float32) / np.float32(255) - _MEAN) / _DEVIATION
        return np.ascontiguousarray(values.transpose(2, 0, 1), np.float32)


def _cut(image: Image, size: int, change: np.random.Generator | None) -> Image:
    """A square of `size` pixels: the middle, or with `change` a random part that may be mirrored."""
    from PIL.Image import Resampling, Transpose

    short = min(image.size)
    side = short if change is None else int(short * change.uniform(0.8, 1))
    side = max(1, side)
    free = (image.width - side, image.height - side)
    left, top = (f // 2 for f in free) if change is None else (int(change.integers(f + 1)) for f in free)
    cut = image.resize((size, size), Resampling.BILINEAR, box=(left, top, left + side, top + side))
    if change is not None and change.random() < 0.5:
        cut = cut.transpose(Transpose.FLIP_LEFT_RIGHT)
    return cut
