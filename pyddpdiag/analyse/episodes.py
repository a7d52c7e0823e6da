"""Steps in which one rank, always the same one, is late although it usually is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import (
    CHANCE,
    LONG,
    MATTERS_SHARE,
    NEARLY_ALL,
    SEVERAL,
    event_ms,
)
from pyddpdiag.analyse.chance import at_least, period
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import StepMatrix, beyond_usual, column_medians
from pyddpdiag.analyse.usage import UsageMatrix


@dataclass(frozen=True, eq=False)
class Episodes:
    """The steps `at` in which `rank` was later than usual and than the others, by `lead_ms`.

    `steps` is how many were looked at, `share` the part of the time that went that way. With `core_waits_known`, time
    in which a rank only waited for a core does not count. `collector_share`: how much of it the garbage collector
    took; None = not known. `by_chance`: what can hit any rank may have hit this one so often. `few`: only two
    events did.
    """

    rank: int
    at: npt.NDArray[np.int64]
    lead_ms: Float64
    steps: int
    share: float
    core_waits_known: bool
    collector_share: float | None
    by_chance: bool
    few: bool


@dataclass(frozen=True, eq=False)
class LateSteps:
    """By how much the last rank is later than usual and than the next one, in the steps `rows` of the matrix.

    `is_late`: by enough to count, in which step; `last`: the column of the rank. With `core_waits_known`, time in which
    a rank only waited for a core does not count. `time_ms`: what all of these steps took.
    """

    rows: npt.NDArray[np.int64]
    lead_ms: Float64
    is_late: npt.NDArray[np.bool_]
    last: npt.NDArray[np.int64]
    core_waits_known: bool
    time_ms: float

    @property
    def share(self) -> float:
        """The part of the time in which the others wait for such a rank."""
        return self.share_of(self.is_late)

    def share_of(self, some: npt.NDArray[np.bool_]) -> float:
        """The part of the time in which they wait in some of these steps."""
        return float(self.lead_ms[some].sum()) / self.time_ms if self.time_ms > 0.0 else 0.0


def late_steps(steps: StepMatrix, usage: UsageMatrix) -> LateSteps | None:
    """The steps in which some rank is late although it usually is not; None: not known."""
    rows = np.flatnonzero(~np.isnan(steps.own).any(axis=1))
    if len(steps.ranks) < 2 or not steps.can_judge or not len(rows):
        return None
    delay = usage.run_delay[rows]
    known = ~np.isnan(delay).any(axis=1)
    # The first step of a trace has no difference to one before.
    delays_known = bool(np.count_nonzero(known) >= len(rows) - 1 > 0)
    if delays_known:
        rows, delay = rows[known], delay[known]
    own = steps.own[rows]
    beyond = own - column_medians(own)
    if delays_known:
        beyond -= beyond_usual(delay)
    ordered = np.sort(beyond, axis=1)
    lead = ordered[:, -1] - np.maximum(ordered[:, -2], 0.0)
    return LateSteps(
        rows=rows,
        lead_ms=lead,
        is_late=lead > event_ms(steps.wall_ms),
        last=beyond.argmax(axis=1),
        core_waits_known=delays_known,
        time_ms=len(rows) * float(np.fmax(steps.wall[rows], own).mean()),
    )


def episodes(steps: StepMatrix, usage: UsageMatrix) -> Episodes | None:
    """The rank that is late now and then, if there is one."""
    late = late_steps(steps, usage)
    if late is None:
        return None
    rows, lead = late.rows, late.lead_ms
    place = int(np.bincount(late.last[late.is_late], lead[late.is_late], len(steps.ranks)).argmax())
    hit = late.is_late & (late.last == place)
    times, others = int(np.count_nonzero(hit)), int(np.count_nonzero(late.is_late & ~hit))
    share = late.share_of(hit)
    one_rank = times >= NEARLY_ALL * (times + others) or share >= NEARLY_ALL * late.share
    long = hit.any() and float(lead[hit].min()) >= LONG * steps.wall_ms and not others
    least = SEVERAL - 1 if long else SEVERAL
    if times < least or not one_rank or share < MATTERS_SHARE:
        return None
    at = steps.step[rows[hit]]
    # Neighbouring steps are one event: what hits a rank by chance often lasts for some.
    events = 1 + int(np.count_nonzero(np.diff(at) > 1))
    by_chance = False
    if period(at) is None:
        by_chance = chance_of_one(events, others, len(steps.ranks)) > CHANCE
        # Other load on the machine, which hits any rank, makes ranks wait for a core; that is taken off where known.
        if events < least or (by_chance and not late.core_waits_known):
            return None
    collector = usage.collector[rows[hit], place]
    return Episodes(
        rank=steps.ranks[place],
        at=at,
        lead_ms=lead[hit],
        steps=len(rows),
        share=share,
        core_waits_known=late.core_waits_known,
        collector_share=None if np.isnan(collector).any() else float(collector.sum() / lead[hit].sum()),
        by_chance=by_chance,
        few=events < SEVERAL and period(at) is None,
    )


def chance_of_one(events: int, others: int, ranks: int) -> float:
    """The probability that of so many events that can hit any rank alike at least `events` hit the same one."""
    return min(1.0, ranks * at_least(events, events + others, 1 / ranks))
