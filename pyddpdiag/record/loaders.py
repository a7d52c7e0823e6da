"""What a training takes its batches from: the sampler, its parts, and whether its epochs differ."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch.utils.data import Subset
from torch.utils.data.distributed import DistributedSampler

from pyddpdiag.model.training import MOST, Loaded

MOST_PICKED: Final = 1024
"""Indices of a Subset that are read at the beginning of an epoch: some 0.1 ms."""


@dataclass
class _Used:
    facts: Loaded
    epochs: set[int] = field(default_factory=set)


class Loaders:
    """The loaders of one rank's training.

    Args:
        found: called when there is something new to be written down.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._used: dict[Loaded, _Used] = {}

    def begins(self, loader: object) -> None:
        """A training begins to go through a loader of torch's, or an iterator of one. Other loaders are ignored."""
        try:
            seen = described(loader)
        except Exception:  # a property of somebody's own class: the training must not end by it
            return
        if seen is None:
            return
        facts, epoch = seen
        key = replace(facts, picked=None)  # a script may pick others in each epoch
        used = self._used.get(key)
        if used is None:
            if len(self._used) >= MOST:
                return
            used = self._used[key] = _Used(facts)
        if epoch is not None and len(used.epochs) < MOST:
            used.epochs.add(epoch)
        epochs = used.facts.epochs + 1
        used.facts = replace(used.facts, epochs=epochs, distinct=len(used.epochs))
        if epochs & (epochs - 1) == 0:
            self._found()

    def loaded(self) -> tuple[Loaded, ...]:
        """What was seen."""
        return tuple(used.facts for used in list(self._used.values()))


def described(loader: object) -> tuple[Loaded, int | None] | None:
    """What is known of a loader or of an iterator of one, and the epoch that its sampler is in.

    None: nothing, as of a data set without indices. Raises what properties of somebody's own class raise.
    """
    index_sampler = _first(loader, "_index_sampler", "batch_sampler", "sampler")
    if index_sampler is None:
        return None
    batches = index_sampler
    # Wrapped, as Accelerate does. An object may have all attributes that it is asked for.
    for _ in range(MOST):
        if getattr(batches, "batch_sampler", None) is None:
            break
        batches = batches.batch_sampler
    sampler = getattr(batches, "sampler", batches)
    if type(sampler).__name__.startswith("_"):
        return None  # torch's own for data sets without indices
    distributed = isinstance(sampler, DistributedSampler) or (
        hasattr(sampler, "num_replicas") and hasattr(sampler, "rank")
    )
    epoch = getattr(sampler, "epoch", None)
    facts = Loaded(
        sampler=type(sampler).__name__,
        distributed=distributed or batches is not index_sampler,
        replicas=_whole(getattr(sampler, "num_replicas", None)),
        rank=_whole(getattr(sampler, "rank", None)),
        shuffle=sampler.shuffle if isinstance(getattr(sampler, "shuffle", None), bool) else None,
        seed=_whole(getattr(sampler, "seed", None)),
        length=_length(sampler),
        batch_size=_whole(getattr(batches, "batch_size", None)),
        workers=_whole(_first(loader, "num_workers", "_num_workers")),
        picked=_picked(_first(loader, "dataset", "_dataset")),
    )
    return facts, _whole(epoch)


def _picked(data: Any) -> int | None:
    """A checksum of which samples a Subset holds, of a part of them evenly spread; None: it is none."""
    mark = None
    while isinstance(data, Subset):
        indices = data.indices
        some = [int(one) for one in indices[:: -(-len(indices) // MOST_PICKED) or 1]]
        mark = zlib.crc32(repr(some).encode(), mark or 0)
        data = data.dataset
    return mark


def _first(owner: object, *names: str) -> Any:
    return next((found for name in names if (found := getattr(owner, name, None)) is not None), None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except TypeError:
        return None
