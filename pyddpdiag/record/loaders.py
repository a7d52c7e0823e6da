"""What a training takes its batches from: the sampler, its parts, and whether its epochs differ."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import Subset
from torch.utils.data.distributed import DistributedSampler

from pyddpdiag.model.training import MOST, Loaded
from pyddpdiag.record.held import attribute
from pyddpdiag.record.unseen import unseen
from pyddpdiag.system.handlers import quietly

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
        seen = None
        with quietly:  # a property of somebody's own class: the training must not end by it
            seen = described(loader)
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

    None: nothing, as of a data set without indices. Of somebody's own classes only what the objects hold is read.
    """
    index_sampler = attribute(loader, "_index_sampler", "batch_sampler", "sampler")
    if index_sampler is None:
        return None
    batches = index_sampler
    # Wrapped, as Accelerate does.
    for _ in range(MOST):
        inner = attribute(batches, "batch_sampler")
        if inner is None:
            break
        batches = inner
    sampler = attribute(batches, "sampler")
    sampler = batches if sampler is None else sampler
    if type(sampler).__name__.startswith("_"):
        return None  # torch's own for data sets without indices
    replicas, rank = attribute(sampler, "num_replicas"), attribute(sampler, "rank")
    distributed = issubclass(type(sampler), DistributedSampler) or None not in (replicas, rank)
    shuffle = attribute(sampler, "shuffle")
    facts = Loaded(
        sampler=type(sampler).__name__,
        distributed=distributed or batches is not index_sampler,
        replicas=_whole(replicas),
        rank=_whole(rank),
        shuffle=shuffle if type(shuffle) is bool else None,
        seed=_whole(attribute(sampler, "seed")),
        length=_length(sampler),
        batch_size=_whole(attribute(batches, "batch_size")),
        workers=_whole(attribute(loader, "num_workers", "_num_workers")),
        picked=_picked(attribute(loader, "dataset", "_dataset")),
    )
    return facts, _whole(attribute(sampler, "epoch"))


def _picked(data: Any) -> int | None:
    """A checksum of which samples a Subset holds, of a part of them evenly spread; None: it is none."""
    mark = None
    while issubclass(type(data), Subset):
        indices = attribute(data, "indices")
        if type(indices) not in (list, tuple, range, np.ndarray, torch.Tensor):
            return None
        with unseen():
            some = [int(one) for one in indices[:: -(-len(indices) // MOST_PICKED) or 1]]
        mark = zlib.crc32(repr(some).encode(), mark or 0)
        data = attribute(data, "dataset")
    return mark


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _length(sampler: Any) -> int | None:
    """Of a sampler that counts as torch's own do: another one may make all its batches for that."""
    count = getattr(type(sampler), "__len__", None)
    if not getattr(count, "__module__", "").startswith("torch."):
        return None
    try:
        return len(sampler)
    except TypeError:
        return None
