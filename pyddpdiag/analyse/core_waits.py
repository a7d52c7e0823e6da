"""Which ranks wait for a processor core in a typical step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, LEAST_STEPS, least_ms
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.settings import by_host, host_cores
from pyddpdiag.analyse.step_matrix import StepMatrix, lower_median, median
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.rows import Int64


@dataclass(frozen=True)
class CoreWaits:
    """The ranks whose run-queue delay per step exceeds 1 ms and 10% of the step, with its median in milliseconds.

    `cost_ms` is how much shorter a typical step would be without it; a rank that nobody waits for costs nothing. Where
    the cause is known, both are averages.
    """

    by_rank: Mapping[int, float]
    cost_ms: float

    def __bool__(self) -> bool:
        """Whether a rank waits, and the step with it."""
        return bool(self.by_rank)


NOBODY: Final = CoreWaits({}, 0.0)


def core_waits(
    steps: StepMatrix,
    usage: UsageMatrix,
    ranks: Collection[int],
    late: Collection[int] = (),
    *,
    known: bool = False,
) -> CoreWaits:
    """Which of these ranks wait for a core.

    Args:
        late: ranks that are late: of theirs counts only what the others wait as well; the rest is their lateness.
        known: something else shows that they wait. Where waits come in bursts, as under a limit that holds for parts of
            a second, no step is typical, and too few would tell that for sure.
    """
    rows = np.flatnonzero(~(np.isnan(steps.own) | np.isnan(usage.run_delay)).any(axis=1))
    if not steps.can_judge or len(rows) < LEAST_STEPS or not steps.wall_ms > 0.0:
        return NOBODY
    threshold = least_ms(steps.wall_ms)
    delay = usage.run_delay[rows].copy()
    shared = lower_median(delay)
    found: dict[int, float] = {}
    for place, rank in enumerate(steps.ranks):
        if rank in late:
            delay[:, place] = np.minimum(delay[:, place], shared)
        if rank not in ranks:
            delay[:, place] = 0.0
    usual: Callable[[Float64], float] = _mean if known else median
    # Where it is another rank that waits in each step, none does so in a typical one, and yet all are held up.
    together = known or sure_median(saved_ms(steps.own[rows], delay)) > threshold
    for place, rank in enumerate(steps.ranks):
        typical = usual(delay[:, place])
        if rank in ranks and typical > threshold and (together or sure_median(delay[:, place]) > threshold):
            found[rank] = typical
        else:
            delay[:, place] = 0.0
    cost = usual(saved_ms(steps.own[rows], delay))
    return CoreWaits(found, cost) if found and cost > threshold else NOBODY


def by_other_programs(steps: StepMatrix, usage: UsageMatrix, sidecars: Mapping[int, Sidecar]) -> Float64:
    """What each rank waits for a core because of other programs, at most: [steps, ranks] in ms; NaN = not known.

    Who waits for a core waits for what runs there. Other programs never have more than the ranks leave of the cores'
    time. Where that is less than a core, though there is one for each rank, the ranks also lose to their other threads
    (Gloo's sums, a loader's) what these compute.
    """
    found: Float64 = usage.run_delay.copy()
    for ranks in by_host(sidecars, steps.ranks).values():
        at, cores = [steps.place_of[rank] for rank in ranks], host_cores(sidecars, ranks)
        if not cores:
            continue
        waits, wall = found[:, at].sum(axis=1), steps.wall[:, at].max(axis=1)
        left = cores * wall - usage.process_cpu[:, at].sum(axis=1)
        beside = (usage.process_cpu - usage.cpu)[:, at].sum(axis=1)
        if len(ranks) <= cores:
            left = np.where(left < wall, np.minimum(left, waits - beside), left)
        part = np.divide(left, waits, out=np.ones(len(waits)), where=waits > 0.0)
        # Of a process about which the system tells nothing, all may be other programs'.
        found[:, at] *= np.clip(np.nan_to_num(part, nan=1.0), 0.0, 1.0)[:, None]
    return np.asarray(found)


def load_per_core(
    steps: StepMatrix, usage: UsageMatrix, sidecars: Mapping[int, Sidecar], rows: Int64
) -> dict[int, float]:
    """By rank the median load average of its machine in these rows, for each core that the ranks there may use."""
    found: dict[int, float] = {}
    for ranks in by_host(sidecars, steps.ranks).values():
        cores = host_cores(sidecars, ranks)
        load = median(usage.load[rows][:, [steps.place_of[rank] for rank in ranks]].ravel())
        if cores and not np.isnan(load):
            found |= dict.fromkeys(ranks, load / cores)
    return found


def spins(steps: StepMatrix, usage: UsageMatrix, sidecars: Mapping[int, Sidecar]) -> bool:
    """Whether ranks of several threads wait for cores: a thread that waits for the others of its rank spins, as if it
    worked."""
    threads = max((sidecar.torch_threads for sidecar in sidecars.values()), default=0)
    waits = np.nan_to_num(usage.run_delay)
    return threads > 1 and bool(waits.size) and bool(waits.mean() > HEALTHY_SHARE * steps.wall_ms)


def _mean(values: Float64) -> float:
    return float(values.mean())


def saved_ms(own: Float64, delay: Float64) -> Float64:
    """How much earlier each step's last rank would be ready without these delays; NaN where one is not known."""
    return np.asarray(own.max(axis=1) - (own - delay).max(axis=1)) if own.size else np.empty(0)
