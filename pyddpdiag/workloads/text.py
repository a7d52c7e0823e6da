"""A text file, character by character: the network predicts the next one from those before it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyddpdiag.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

#: Characters that are seen at once.
CONTEXT = 64
_TEST_SHARE = 0.1
_LEAST = 40 * CONTEXT


@dataclass(frozen=True, eq=False)
class Text:
    """The file as numbers of its characters; the last tenth is for the test."""

    alphabet: str
    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def read_text(path: Path) -> Text:
    """Reads a UTF-8 file.

    Raises:
        DataError: it cannot be read, or is too short to learn from.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"The text {path} cannot be read: {error.strerror or error}.", hint="--data FILE, a text file."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"The text {path} is not in UTF-8: {error.reason} at byte {error.start}.",
            hint="save it as UTF-8.",
        ) from error
    if len(text) < _LEAST:
        raise DataError(
            f"The text {path} has {len(text)} characters, but at least {_LEAST} are needed.",
            hint="use a longer text; a book is better than a page.",
        )
    alphabet, numbers = np.unique(np.array(list(text)), return_inverse=True)
    cut = int(len(numbers) * (1 - _TEST_SHARE))
    values = numbers.astype(np.int64)
    return Text("".join(alphabet.tolist()), values[:cut], values[cut:])


@dataclass(frozen=True, eq=False)
class TextSamples:
    """Pieces of a text: inputs (n, CONTEXT) int64, and as targets the same shifted by one character."""

    numbers: npt.NDArray[np.int64]
    seed: int

    def __len__(self) -> int:
        # One piece less than fits: in each epoch all of them begin at another offset.
        return max(0, (len(self.numbers) - 1) // CONTEXT - 1)

    def fetch(self, chosen: npt.NDArray[np.int64], epoch: int | None) -> tuple[Tensor, Tensor]:
        """See `Samples.fetch`."""
        import torch

        offset = 0
        if epoch is not None:
            offset = int(np.random.Generator(np.random.PCG64([self.seed, epoch, 1])).integers(CONTEXT))
        places = (chosen * CONTEXT + offset)[:, None] + np.arange(CONTEXT + 1)
        pieces = torch.from_numpy(self.numbers[places])
        return pieces[:, :-1], pieces[:, 1:]
