"""Parts of the run in which all ranks need longer for their own part of a step than in the rest of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from pyddpdiag.analyse.bounds import (
    HEALTHY_SHARE,
    LARGE_SHARE,
    LEAST_MS,
    NEAR,
    SHARED_TIMES,
    WINDOW,
)
from pyddpdiag.analyse.core_waits import load_per_core
from pyddpdiag.analyse.extra_time import ExtraTime, waits_per_cpu
from pyddpdiag.analyse.grouped import Float64, median_at_most, sure_median
from pyddpdiag.analyse.step_matrix import StepMatrix, lower_median, median, step_walls
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.analyse.windows import Stretches, stretches
from pyddpdiag.model.findings import Cause, Confidence
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.rows import Bool, Int64


@dataclass(frozen=True, eq=False)
class Slower:
    """All ranks are slower in some parts of the run.

    Attributes:
        span: the parts.
        own_ms: what the fastest rank needs in each step for its own part, without its wait for data.
        inside: whether a step belongs to the parts.
        time_ms: what all the steps took.
        rows: of the step matrix, those that it was looked for in: every rank's own time is known there.
        by_core: without what the ranks wait for a core, there are no such parts.
        extra: what the difference is spent for.
        load: the load average of the busiest host for each core that its ranks may use, in the parts; None: not known.
    """

    span: Stretches
    own_ms: Float64
    inside: Bool
    time_ms: float
    rows: Int64
    by_core: bool
    extra: ExtraTime = field(default_factory=ExtraTime)
    load: float | None = None

    @cached_property
    def there_ms(self) -> float:
        """What is typical in the parts."""
        return median(self.own_ms[self.inside])

    @cached_property
    def usual_ms(self) -> float:
        """What is typical in the rest."""
        return median(self.own_ms[~self.inside])

    @property
    def times(self) -> float:
        """How many times as long a step's own part takes there."""
        return self.there_ms / self.usual_ms

    @property
    def lost_ms(self) -> float:
        """What the parts cost in all."""
        return float((self.own_ms[self.inside] - self.usual_ms).sum())

    @property
    def share(self) -> float:
        """The same of the time of all the steps."""
        return self.lost_ms / self.time_ms if self.time_ms > 0 else 0.0

    @property
    def grows(self) -> bool:
        """Whether the ranks become slower bit by bit, and not at once: on either side of the change, too."""
        if len(self.span.spans) > 1:
            return False
        for part in (self.own_ms[self.inside], self.own_ms[~self.inside]):
            third = len(part) // 3
            if median(part[-third:]) - median(part[:third]) < LARGE_SHARE * (self.there_ms - self.usual_ms):
                return False
        return True

    @property
    def cause(self) -> Cause | None:
        """What the ranks do in the time that they need more; None: the trace does not tell."""
        found = self.extra.cause
        # What is left beside the wait is no change by itself.
        return None if found == "blocked" and self.by_core else found

    @property
    def confidence(self) -> Confidence:
        """`low` where other programs on the machine may have made it."""
        if self.cause in ("blocked", "device"):
            return "medium"
        if self.cause == "core":
            return "low"
        # Processor time grows with other load, too, as caches and cores are shared.
        return "medium" if (self.extra.cpu_times or self.times) > SHARED_TIMES else "low"


def slower(steps: StepMatrix, usage: UsageMatrix, sidecars: Mapping[int, Sidecar]) -> Slower | None:
    """The parts of the run in which all ranks are slower; None: there is none.

    Otsu's threshold (1979) finds two levels in the logarithm of running medians; the parts are the
    stretches over it. There must be a window of steps on either side.
    """
    rows = np.flatnonzero(~np.isnan(steps.own).any(axis=1))
    if not steps.can_judge or len(rows) < 2 * WINDOW:
        return None
    own = steps.own[rows] - np.nan_to_num(steps.data_wait[rows])
    wall = step_walls(steps)[rows]
    # What the ranks wait for a core is other programs' as a rule, and hides what changes in the training.
    of_itself = _change(own - np.nan_to_num(usage.run_delay[rows]), wall, rows, by_core=False)
    found = of_itself or _change(own, wall, rows, by_core=True)
    if found is None:
        return None
    inside = found.inside
    cpu = _levels(usage.cpu[rows], inside)
    # Without what they wait for a core, nothing of the difference is that.
    delay = _levels(usage.run_delay[rows] * (0.0 if of_itself else 1.0), inside)
    device = _levels(usage.device[rows], inside)
    others = _levels((usage.process_cpu - usage.cpu)[rows], inside)
    more = found.there_ms - found.usual_ms

    def part(levels: tuple[float, float] | None) -> float | None:
        return None if levels is None else (levels[0] - levels[1]) / more

    return replace(
        found,
        extra=ExtraTime(
            device=part(device),
            cpu=part(cpu),
            core=part(delay),
            # Helper threads may do the work while the one that runs backward waits for them.
            threads=part(others),
            waits_per_cpu=waits_per_cpu((cpu[0], delay[0]), (cpu[1], delay[1])) if cpu and delay else 0.0,
            cpu_times=None if cpu is None or not cpu[1] > 0 else cpu[0] / cpu[1],
        ),
        load=max(load_per_core(steps, usage, sidecars, rows[inside]).values(), default=None),
    )


def _change(ranks: Float64, wall: Float64, rows: Int64, *, by_core: bool) -> Slower | None:
    """The parts in which the fastest rank is slower; a rank that is slow alone is late.

    Args:
        ranks: what each needs in each step; ms, [steps, ranks].
        wall: what each step took; ms.
    """
    own = np.maximum(ranks, 0.0).min(axis=1)
    near = _running_median(own)
    threshold = _two_levels(near)
    if threshold is None:
        return None
    span = stretches(near - threshold)
    if span is None:
        return None
    inside = np.zeros(len(own), np.bool_)
    inside[span.rows] = True
    there, rest = own[inside], own[~inside]
    if len(there) < WINDOW or len(rest) < WINDOW or np.mean(rest > threshold) > LARGE_SHARE:
        return None
    found = Slower(span, own, inside, float(np.fmax(wall, own).sum()), rows, by_core)
    if (
        not found.usual_ms > 0
        or found.there_ms - found.usual_ms < LEAST_MS
        or found.there_ms < (1 + LARGE_SHARE) * found.usual_ms
        or sure_median(there) < (1 + HEALTHY_SHARE) * median_at_most(rest)
        or found.share < HEALTHY_SHARE
    ):
        return None
    return found


def _running_median(values: Float64) -> Float64:
    around = np.pad(values, NEAR // 2, mode="edge")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(around, NEAR), axis=1))


def _two_levels(values: Float64) -> float | None:
    """The threshold that splits the values best into two levels of at least a window each; None: they are all alike."""
    # Without their waits for a core, short parts are near 0, where logarithms would be all of the difference.
    ordered = np.log(np.maximum(np.sort(values), LEAST_MS))
    count = len(ordered)
    low = np.arange(WINDOW, count - WINDOW + 1)
    total = np.cumsum(ordered)
    apart = total[low - 1] / low - (total[-1] - total[low - 1]) / (count - low)
    between = low * (count - low) * apart**2
    best = int(low[int(between.argmax())])
    first, second = float(np.median(ordered[:best])), float(np.median(ordered[best:]))
    return float(np.exp((first + second) / 2)) if second - first >= np.log(1 + LARGE_SHARE) else None


def _levels(values: Float64, inside: Bool) -> tuple[float, float] | None:
    """What is typical of the ranks in these parts and in the rest; None: too little is known."""
    typical = lower_median(values)
    known = ~np.isnan(typical)
    if min(np.count_nonzero(known & inside), np.count_nonzero(known & ~inside)) < WINDOW // 2:
        return None
    return median(typical[inside]), median(typical[~inside])
