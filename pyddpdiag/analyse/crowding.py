"""Hosts whose ranks run more threads than there are cores, and pay for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyddpdiag.analyse.bounds import LARGE_SHARE, MANY_THREADS, MOST
from pyddpdiag.analyse.core_waits import CoreWaits, core_waits
from pyddpdiag.analyse.settings import by_host, host_cores
from pyddpdiag.analyse.step_matrix import StepMatrix, median
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.model.sidecar import Sidecar


@dataclass(frozen=True)
class Crowding:
    """One host. `threads` of all its `ranks` together share `cores`.

    `waits` tells which of them wait for a core. `busy_cores` is how many cores the ranks keep busy on average.
    `culprit` is the rank whose other threads keep the cores busy, or else the one that has most of the threads; None:
    there is no such rank. `burnt_ms` is what its other threads use of the processor in a step, None: no rank's explain
    the waiting. `own_threads`: torch has so many there.
    """

    host: str
    ranks: tuple[int, ...]
    threads: int
    cores: int
    waits: CoreWaits
    busy_cores: float
    culprit: int | None
    burnt_ms: float | None = None
    own_threads: int = 0

    @property
    def is_sure(self) -> bool:
        """Whether there are clearly too many threads, and no other programs that take most of the cores."""
        if self.burnt_ms is None:
            is_theirs = self.busy_cores >= MOST * self.cores
        else:
            waiting = max((self.waits.by_rank.get(rank, 0.0) for rank in self.victims), default=0.0)
            is_theirs = self.burnt_ms >= MOST * waiting
        return self.threads >= MANY_THREADS * self.cores and is_theirs

    @property
    def victims(self) -> tuple[int, ...]:
        """The ranks that wait for cores because of the culprit; none if there is no culprit."""
        return () if self.culprit is None else tuple(rank for rank in self.ranks if rank != self.culprit)


def crowding(sidecars: Mapping[int, Sidecar], steps: StepMatrix, usage: UsageMatrix) -> tuple[Crowding, ...]:
    """The hosts with more threads than cores, whose ranks wait for cores that they themselves keep busy."""
    hosts = by_host(sidecars, steps.ranks)
    crowded = (_of_host(host, ranks, sidecars, steps, usage) for host, ranks in hosts.items() if host)
    return tuple(one for one in crowded if one is not None)


def _of_host(
    host: str, ranks: Sequence[int], sidecars: Mapping[int, Sidecar], steps: StepMatrix, usage: UsageMatrix
) -> Crowding | None:
    threads = {rank: sidecars[rank].torch_threads for rank in ranks}
    cores = host_cores(sidecars, ranks)
    total = sum(threads.values())
    # With one thread each there are too many ranks: that is `core_contention`.
    many = max(threads.values()) > 1 and total > cores
    # An unknown number is no evidence; a NaN fails the comparison.
    if not all(threads.values()) or not cores:
        return None
    waits = core_waits(steps, usage, ranks)
    burnt = {rank: _beside(usage, steps.place_of[rank]) for rank in ranks}
    burner = _burner(
        burnt, waits, steps.wall_ms, {r for r, each in threads.items() if each >= MANY_THREADS * cores}
    )
    if burner is not None and _may_spin(burnt, threads, burner, steps.wall_ms):
        burner = None
    if burner is None and many:
        # That it is one rank has to show in typical steps; that there are too many threads is known.
        waits = core_waits(steps, usage, ranks, known=True)
    if not waits:
        return None
    used = sum(median(usage.process_cpu[:, steps.place_of[rank]]) for rank in ranks)
    busy = used / steps.wall_ms
    # Other programs may take the cores; so many threads, if they work, are too many beside them, too.
    work = total >= MANY_THREADS * cores and sum(burnt.values()) > MOST * used
    many = many and (busy >= MOST * cores or work)
    if burner is None and not many:
        return None
    culprit = burner if burner is not None else _culprit(threads)
    return Crowding(
        host,
        tuple(ranks),
        total,
        cores,
        waits,
        busy,
        culprit,
        burnt[burner] if burner is not None else None,
        threads[culprit] if culprit is not None else 0,
    )


def _beside(usage: UsageMatrix, place: int) -> float:
    """The processor time of a rank's threads other than the one that runs backward, in a typical step."""
    return median(usage.process_cpu[:, place] - usage.cpu[:, place])


def _burner(
    burnt: Mapping[int, float], waits: CoreWaits, step_ms: float, with_many: Collection[int]
) -> int | None:
    """The rank whose other threads take the cores for which other ranks wait.

    `with_many`: ranks that have too many threads by themselves.
    """
    if len(burnt) < 2:
        return None
    *_, second, first = sorted(burnt, key=lambda rank: burnt[rank])
    more = burnt[first] - max(0.0, burnt[second])
    waiting = max((waits.by_rank[rank] for rank in waits.by_rank if rank != first), default=0.0)
    is_its_own = more >= LARGE_SHARE * step_ms and burnt[first] >= 2 * burnt[second]
    explained = LARGE_SHARE if first in with_many else MOST
    return first if is_its_own and waiting and more >= explained * waiting else None


def _may_spin(burnt: Mapping[int, float], threads: Mapping[int, int], burner: int, step_ms: float) -> bool:
    """Whether its other threads may be those of torch, as many as another rank has, which spin for want of cores: they
    are not why there are too few."""
    beside = threads[burner] - 1
    most = max(each for rank, each in threads.items() if rank != burner)
    return 0 < beside < most and burnt[burner] <= beside * step_ms


def _culprit(threads: Mapping[int, int]) -> int | None:
    """The rank that has more than half of the threads, and at least twice as many as any other."""
    if len(threads) < 2:
        return None
    *_, second, first = sorted(threads, key=lambda rank: threads[rank])
    most = threads[first] >= 2 * threads[second] and 2 * threads[first] > sum(threads.values())
    return first if most else None
