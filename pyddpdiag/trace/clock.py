"""Put all ranks on one clock.

Ranks with the same clock identity need nothing. Between different clocks the difference of the wall clocks is
where to begin, and causality bounds it: no rank's all-reduce can end before every rank has started it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyddpdiag.trace.merge import Int64, Merged
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
    domains: dict[str, int] = {}
    domain_of = np.array(
        [domains.setdefault(t.header.clock_identity or f"rank {t.rank}", len(domains)) for t in run.ranks]
    )
    # Wall clock minus monotonic clock; the first rank of a domain speaks for it, so that ranks on one clock
    # get the very same offset.
    _, speakers = np.unique(domain_of, return_index=True)
    epoch = [run.ranks[who].header.wall_ns - run.ranks[who].header.monotonic_ns for who in speakers.tolist()]
    start = np.array([value - epoch[0] for value in epoch], np.float64)
    if len(domains) == 1:
        return tuple(ClockOffset(0, 0) for _ in run.ranks)
    upper = _tighten(_bounds(merged, domain_of, len(domains)))
    by_domain = []
    for domain in range(len(domains)):
        # upper[i, j] bounds offset_i - offset_j, and the first domain's offset is 0.
        low, high = -upper[0, domain], upper[domain, 0]
        by_domain.append(
            _settle(float(start[domain]), float(low), float(high)) if domain else ClockOffset(0, 0)
        )
    return tuple(by_domain[domain] for domain in domain_of.tolist())


def offsets_of(clocks: tuple[ClockOffset, ...]) -> Int64:
    """The offsets as an array in nanoseconds, one per rank."""
    return np.array([clock.offset_ns for clock in clocks], np.int64)


def _settle(start: float, low: float, high: float) -> ClockOffset:
    """The wall clock's offset, moved into the bounds."""
    if low > high:
        middle = (low + high) / 2
        return ClockOffset(round(middle), round((low - high) / 2), inconsistent=True)
    offset = min(max(start, low), high)
    reach = max(high - offset, offset - low)
    return ClockOffset(round(offset), round(reach) if np.isfinite(reach) else None)


def _bounds(merged: Merged, domain_of: npt.NDArray[np.int64], domains: int) -> npt.NDArray[np.float64]:
    """Upper bounds of offset_i - offset_j for every two clocks: [domains, domains] float64, inf = none."""
    upper = np.full((domains, domains), np.inf)
    np.fill_diagonal(upper, 0.0)
    rows = merged.rows
    if not len(rows):
        return upper
    occurrence = np.repeat(np.arange(len(merged)), merged.count)
    domain = domain_of[rows.who]
    # The latest start and the earliest end of every clock in every occurrence, ragged again.
    key = occurrence * domains + domain
    order = np.argsort(key, kind="stable")
    key, begins = np.unique(key[order], return_index=True)
    # An operation cannot start before it was enqueued, so that will do where the start was not seen.
    begun = np.where(rows.started > 0, rows.started, rows.enqueued).astype(np.float64)
    begun[begun == 0] = -np.inf
    ended = np.where(rows.ended > 0, rows.ended, np.inf).astype(np.float64)
    ended[rows.ended == 0] = np.inf
    latest_start = np.maximum.reduceat(begun[order], begins)
    earliest_end = np.minimum.reduceat(ended[order], begins)
    occurrence, domain = key // domains, key % domains
    for i in range(domains):
        # started_i + offset_i <= ended_j + offset_j, over all occurrences that both clocks saw.
        start_of_i = np.full(len(merged), -np.inf)
        start_of_i[occurrence[domain == i]] = latest_start[domain == i]
        np.minimum.at(upper[i], domain, earliest_end - start_of_i[occurrence])
    np.fill_diagonal(upper, 0.0)
    return upper


def _tighten(upper: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bounds through third clocks: shortest paths (Floyd-Warshall), where there are few enough clocks."""
    # A pair that contradicts itself (drift) would spoil the others' bounds on the way through it.
    if len(upper) > 256 or (upper + upper.T < 0).any():
        return upper
    upper = upper.copy()
    for between in range(len(upper)):
        np.minimum(upper, upper[:, between, None] + upper[None, between, :], out=upper)
    return upper
