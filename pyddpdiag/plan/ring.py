"""What a bucket takes in a ring of any number of ranks, from a fit to a ring of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import LONG
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.wire_fit import fit_times


@dataclass(frozen=True)
class Ring:
    """A ring's link: `round_ms` for one of an all-reduce's 2 (n - 1) rounds, `ms_per_byte` for each byte sent."""

    round_ms: float
    ms_per_byte: float

    def work_ms(self, sizes: Float64, ranks: int) -> Float64:
        """What buckets of these bytes take over so many ranks, each with the link to itself."""
        latency, rest = self.parts_ms(sizes, ranks)
        return latency + rest

    def parts_ms(self, sizes: Float64, ranks: int) -> tuple[Float64, Float64]:
        """The same in two parts: the rounds, and the bytes."""
        rounds = 2 * (ranks - 1)
        return np.full(len(sizes), rounds * self.round_ms), rounds / ranks * sizes * self.ms_per_byte


def fit_ring(sizes: Float64, work: Float64, ranks: int, most_round_ms: float = np.inf) -> Ring | None:
    """The ring over `ranks` in which buckets of these sizes took so long; None if it cannot be told from them.

    Its rounds are no longer than `most_round_ms`; the rest of what all buckets took is that of their bytes.
    """
    if ranks < 2 or not len(sizes) or sizes.min() <= 0 or work.min() <= 0 or sizes.max() < LONG * sizes.min():
        return None
    rounds = 2 * (ranks - 1)
    fit = fit_times(sizes, work, rounds * most_round_ms)
    return Ring(fit.latency_ms / rounds, fit.ms_per_byte * ranks / rounds)
