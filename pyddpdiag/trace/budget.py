"""How many of each rank's records are read, so that what is made of them fits into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import RankTrace

USUAL_GB: Final = 0.4
"""What records may take if nothing else is said; beside it stand Python, NumPy and the report, 60 to 100 MB."""

SAMPLE: Final = 2**12
"""So many records tell how many there are in a step."""

# Measured with traces of 1 to 1,024 ranks (docs/performance.md). All records of one rank are in memory at once, with
# what is worked out of them; of every step of every rank something is kept, and of every rank.
_BYTES_OF_RECORD: Final = 205
_BYTES_OF_STEP: Final = 600
_BYTES_OF_RANK: Final = 12_000
# A step of DDP has a bucket, a backward pass and its own record at least.
FEWEST: Final = 3.0
"""Records of a step."""

_STEPS: Final = 20
"""So many steps of each rank are read at least, whatever that takes: fewer are hardly enough to judge by."""


def records_per_step(sample: RankTrace) -> float:
    """How many records a step of a rank has, by some of them."""
    steps = [sample.of_kind(kind)["step"] for kind in (Kind.STEP, Kind.BACKWARD, Kind.BUCKET)]
    return max(FEWEST, len(sample) / max(1, len(np.unique(np.concatenate(steps)))))


def needed_gb(held: Sequence[int], per_step: float = FEWEST) -> float:
    """How much memory it takes to read all records, in GB (10^9 bytes), at most.

    `held`: how many each rank has. `per_step`: how many there are in a step of a rank.
    """
    of_records = _BYTES_OF_RECORD * max(held, default=0) + _BYTES_OF_STEP * sum(held) / per_step
    return (of_records + _BYTES_OF_RANK * len(held)) / 1e9


def that_fit(held: Sequence[int], per_step: float, memory_gb: float) -> list[int]:
    """How many of the newest records of each rank fit: the same share of all, and some steps of each in any case.

    `held`, `per_step`: as in `needed_gb`. `memory_gb`: what they may take, in GB; less than all need.
    """
    of_ranks = needed_gb([0] * len(held))
    share = max(0.0, memory_gb - of_ranks) / (needed_gb(held, per_step) - of_ranks)
    return [min(count, max(int(share * count), round(_STEPS * per_step))) for count in held]
