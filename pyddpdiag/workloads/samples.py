"""Samples by number, and one rank's share of the batches of an epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Indices = npt.NDArray[np.int64]


class Samples(Protocol):
    """A data set whose samples are fetched in any order, from any thread."""

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def fetch(self, chosen: Indices, epoch: int | None) -> tuple[Tensor, Tensor]:
        """Inputs (n, ...) and targets (n, ...) int64 of the chosen samples.

        `epoch` determines random changes to the samples, the same on every rank; None: no changes.
        """
        ...


@dataclass(frozen=True)
class TensorSamples:
    """Samples in memory: inputs (n, ...), targets (n, ...)."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def fetch(self, chosen: Indices, epoch: int | None) -> tuple[Tensor, Tensor]:
        """See `Samples.fetch`; nothing is changed."""
        del epoch
        rows = torch.from_numpy(chosen)
        return self.inputs[rows], self.targets[rows]


def share(count: int, world_size: int, rank: int) -> slice:
    """The part of `count` samples for `rank`; the first `count % world_size` ranks get one more."""
    base, extra = divmod(count, world_size)
    begin = rank * base + min(rank, extra)
    return slice(begin, begin + base + (rank < extra))


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Whole batches in one epoch; the remainder is dropped, a different part in every epoch."""
    return samples // batch_size


@dataclass(frozen=True)
class ShardedBatches:
    """One epoch of one rank: iterates over (inputs, targets) of its share of every batch.

    The order depends only on `seed` and `epoch`, so all ranks agree on it without communication, and the
    batches are the same at every world size.
    """

    samples: Samples
    batch_size: int
    world_size: int
    rank: int
    seed: int
    epoch: int
    workers: int = 0

    def __len__(self) -> int:
        return steps_per_epoch(len(self.samples), self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = np.random.Generator(np.random.PCG64([self.seed, self.epoch]))
        order = generator.permutation(len(self.samples))
        mine = share(self.batch_size, self.world_size, self.rank)
        chosen = [
            order[step * self.batch_size : (step + 1) * self.batch_size][mine] for step in range(len(self))
        ]
        return fetched(self.samples, chosen, self.epoch, self.workers)


def fetched(
    samples: Samples, batches: list[Indices], epoch: int | None, workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches in their order, read ahead by `workers` threads; an error is raised at its batch.

    Threads and not processes: decoding an image or gathering a batch runs without the GIL, a thread starts at
    once on every system, and none is left when a rank is killed.
    """
    if workers == 0:
        for chosen in batches:
            yield samples.fetch(chosen, epoch)
        return
    ahead: deque[Future[tuple[Tensor, Tensor]]] = deque()
    left = deque(batches)
    with ThreadPoolExecutor(workers, "pyddpdiag-loader") as pool:
        try:
            while True:
                while left and len(ahead) < 2 * workers:
                    ahead.append(pool.submit(samples.fetch, left.popleft(), epoch))
                if not ahead:
                    return
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
