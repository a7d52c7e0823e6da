"""Parameters that do not require gradients at the moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def thawed(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """While it lasts, all of them require gradients: a frozen one has no accumulator that could be watched."""
    frozen = [one for one in parameters if not one.requires_grad]
    try:
        for one in frozen:
            one.requires_grad_(True)
        yield
    finally:
        for one in frozen:
            one.requires_grad_(False)
