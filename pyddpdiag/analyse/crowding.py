"""Hosts whose ranks run more threads than there are cores, and pay for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyddpdiag.analyse.core_waits import CoreWaits, core_waits
from pyddpdiag.analyse.settings import host_cores
from pyddpdiag.analyse.step_matrix import StepMatrix, median
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.model.sidecar import Sidecar

MANY: Final = 4
"""So many threads for each core are a mistake in any case."""

BUSY_SHARE: Final = 0.5
"""The ranks themselves must use this share of their cores: otherwise it is another program that takes them."""


@dataclass(frozen=True)
class Crowding:
    """One host. `threads` of all its `ranks` together share `cores`.

    `waits` tells which of them wait for a core. `busy_cores` is how many cores the
    ranks keep busy on average. `culprit` is the rank that has most of the threads, if there is one.
    """

    host: str
    ranks: tuple[int, ...]
    threads: int
    cores: int
    waits: CoreWaits
    busy_cores: float
    culprit: int | None

    @property
    def is_sure(self) -> bool:
        """Whether there are so many threads that it is no matter of taste."""
        return self.threads >= MANY * self.cores


def crowding(sidecars: Mapping[int, Sidecar], steps: StepMatrix, usage: UsageMatrix) -> tuple[Crowding, ...]:
    """The hosts with more threads than cores, whose ranks wait for cores that they themselves keep busy."""
    hosts: dict[str, list[int]] = {}
    for rank in steps.ranks:
        if rank in sidecars and sidecars[rank].host:
            hosts.setdefault(sidecars[rank].host, []).append(rank)
    found = []
    for host, ranks in hosts.items():
        threads = {rank: sidecars[rank].torch_threads for rank in ranks}
        cores = host_cores(sidecars, ranks)
        waits = core_waits(steps, usage, ranks)
        # An unknown number is no evidence; a NaN fails the comparison.
        # With one thread each there are too many ranks: that is reported as `core_contention`.
        if not waits or not all(threads.values()) or max(threads.values()) == 1:
            continue
        if not 0 < cores < sum(threads.values()):
            continue
        busy = sum(median(usage.process_cpu[:, steps.ranks.index(rank)]) for rank in ranks) / steps.wall_ms
        if busy >= BUSY_SHARE * cores:
            found.append(
                Crowding(host, tuple(ranks), sum(threads.values()), cores, waits, busy, _culprit(threads))
            )
    return tuple(found)


def _culprit(threads: Mapping[int, int]) -> int | None:
    """The rank that has more than half of the threads, and at least twice as many as any other."""
    if len(threads) < 2:
        return None
    *_, second, first = sorted(threads, key=lambda rank: threads[rank])
    most = threads[first] >= 2 * threads[second] and 2 * threads[first] > sum(threads.values())
    return first if most else None
