"""Parameters that do not require gradients at the moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from pyddpdiag.record.unseen import unseen


@contextmanager
def thawed(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """While it lasts, all of them require gradients: a frozen one has no accumulator that could be watched."""
    with unseen():
        frozen = [one for one in parameters if not one.requires_grad]
    try:
        _set(frozen, requires_grad=True)
        yield
    finally:
        _set(frozen, requires_grad=False)


def _set(parameters: Iterable[torch.Tensor], *, requires_grad: bool) -> None:
    with unseen():
        for one in parameters:
            one.requires_grad_(requires_grad)
