"""How many batches the ranks have, by what their sidecars say of their loaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyddpdiag.analyse.majority import odd_ones
from pyddpdiag.analyse.training import training_loader
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.words import listed


@dataclass(frozen=True)
class UnevenBatches:
    """Samples and batches of an epoch by rank, where the ranks do not have equally many batches."""

    samples: Mapping[int, int]
    batches: Mapping[int, int]

    @property
    def said(self) -> str:
        """In words, for the first ranks."""
        odd = odd_ones(self.batches)
        first = sorted(self.batches, key=lambda rank: (rank not in odd, rank))
        return "an epoch has " + listed(
            (f"{self.batches[rank]} batches ({self.samples[rank]} samples) on rank {rank}" for rank in first),
            4,
        )


def uneven_batches(sidecars: Mapping[int, Sidecar]) -> UnevenBatches | None:
    """None: every rank has as many, or it is not known of all that have a sidecar.

    Whether a loader drops an incomplete batch is not known, so one batch more for it is no difference.
    """
    loaders = {rank: training_loader(sidecar) for rank, sidecar in sidecars.items()}
    sizes = {
        rank: (one.length, one.batch_size)
        for rank, one in loaders.items()
        if one is not None and one.length and one.batch_size
    }
    if len(sizes) < max(2, len(sidecars)):
        return None
    whole = {rank: length // size for rank, (length, size) in sizes.items()}
    begun = {rank: -(-length // size) for rank, (length, size) in sizes.items()}
    if len(set(whole.values())) == 1 or len(set(begun.values())) == 1:
        return None
    return UnevenBatches({rank: length for rank, (length, _) in sizes.items()}, begun)


__all__ = ["UnevenBatches", "uneven_batches"]
