"""A generated folder of small images: noise around one colour per class, of several sizes and formats."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}


def make_folder(folder: Path, per_class: int, val: int = 0, size: tuple[int, int] = (40, 52)) -> Path:
    """`folder/train/<colour>/`, and `folder/val/<colour>/` if `val` is above 0; returns `folder`."""
    random = np.random.default_rng(7)
    for part, count in (("train", per_class), ("val", val)):
        for name, colour in COLOURS.items() if count else ():
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                # Upright and lying ones, coded in different ways.
                shape = size if number % 2 else size[::-1]
                pixels = np.clip(random.normal(colour, 40, (*shape, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(
                    folder / part / name / f"{number}.{'jpg' if number % 3 else 'png'}"
                )
    return folder
