"""Put all ranks on one clock.

Ranks with the same clock identity need nothing. Between different clocks, the difference of the wall clocks
is the first estimate, and causality bounds it: no rank's all-reduce can end before every rank has started it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyddpdiag.trace.header import MAX_TIME_NS
from pyddpdiag.trace.ledger import NEVER, Ledger
from pyddpdiag.trace.merge import Merged
from pyddpdiag.trace.rows import CHUNK
from pyddpdiag.trace.run import Run


@dataclass(frozen=True)
class ClockOffset:
    """How a rank's clock was moved onto the lowest rank's: `offset_ns` is added to its times.

    `uncertainty_ns` is the largest error that causality leaves possible: 0 on the same clock, None where
    nothing bounds it. `inconsistent` is set where no single offset fits (the clocks drift against each
    other).
    """

    offset_ns: int
    uncertainty_ns: int | None
    inconsistent: bool = False


def align(run: Run, merged: Merged) -> tuple[ClockOffset, ...]:
    """The offset of every rank of the run to the clock of its lowest rank."""
    domain_of = np.array(merged.clock_of)
    # Wall clock minus monotonic clock; the first rank of a domain speaks for it, so that ranks on one clock
    # get the very same offset.
    _, speakers = np.unique(domain_of, return_index=True)
    epoch = [run.ranks[who].header.wall_ns - run.ranks[who].header.monotonic_ns for who in speakers.tolist()]
    # No two clocks are decades apart. A header may claim so, but a moved time must still fit into 64 bits.
    start = np.clip([float(value - epoch[0]) for value in epoch], -MAX_TIME_NS, MAX_TIME_NS)
    if merged.clocks == 1:
        return tuple(ClockOffset(0, 0) for _ in run.ranks)
    upper = _tighten(_bounds(merged))
    by_domain = []
    for domain in range(merged.clocks):
        # upper[i, j] bounds offset_i - offset_j, and the first domain's offset is 0.
        low, high = -upper[0, domain], upper[domain, 0]
        by_domain.append(
            _settle(float(start[domain]), float(low), float(high)) if domain else ClockOffset(0, 0)
        )
    return tuple(by_domain[domain] for domain in domain_of.tolist())


def _settle(start: float, low: float, high: float) -> ClockOffset:
    """The wall clock's offset, moved into the bounds."""
    if low > high:
        middle = (low + high) / 2
        return ClockOffset(round(middle), round((low - high) / 2), inconsistent=True)
    offset = min(max(start, low), high)
    reach = max(high - offset, offset - low)
    return ClockOffset(round(offset), round(reach) if np.isfinite(reach) else None)


def _bounds(merged: Merged) -> npt.NDArray[np.float64]:
    """Upper bounds of offset_i - offset_j for every two clocks: [clocks, clocks] float64, inf = none."""
    upper = np.full((merged.clocks, merged.clocks), np.inf)
    for _, ledger in merged.groups():
        if len(ledger.clocks) > 1:
            _tighten_by(ledger, upper)
    np.fill_diagonal(upper, 0.0)
    return upper


def _tighten_by(ledger: Ledger, upper: npt.NDArray[np.float64]) -> None:
    """Bounds from the all-reduces of one group: started_i + offset_i <= ended_j + offset_j, over all ranks of
    both."""
    for first in range(0, len(ledger), CHUNK):
        part = slice(first, first + CHUNK)
        # An operation cannot start before it was enqueued, so `enqueued` serves where the start was not seen.
        begun = np.stack([times["latest_begun"][part] for times in ledger.clocks.values()]).astype(np.float64)
        begun[begun == 0] = -np.inf
        ended = np.stack([times["earliest_ended"][part] for times in ledger.clocks.values()]).astype(
            np.float64
        )
        ended[ended == NEVER] = np.inf
        others = np.array(list(ledger.clocks))
        for clock, start in zip(ledger.clocks, begun, strict=True):
            upper[clock, others] = np.minimum(upper[clock, others], (ended - start).min(axis=1))


def _tighten(upper: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bounds through third clocks: shortest paths (Floyd-Warshall), where there are few enough clocks."""
    # A pair that contradicts itself (drift) would spoil the others' bounds on the way through it.
    if len(upper) > 256 or (upper + upper.T < 0).any():
        return upper
    upper = upper.copy()
    for between in range(len(upper)):
        np.minimum(upper, upper[:, between, None] + upper[None, between, :], out=upper)
    return upper
