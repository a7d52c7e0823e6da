"""How much longer each rank needs than the others, steps in which one alone is late, and what the time is spent for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.bounds import LEAST_STEPS, SHARED_TIMES
from pyddpdiag.analyse.chance import at_least, period
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.shares import Share, share_of_median
from pyddpdiag.analyse.step_matrix import StepMatrix, beyond_usual, column_medians, extra_ms, step_walls
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.model.findings import Cause
from pyddpdiag.model.words import percent
from pyddpdiag.trace.rows import Bool, Int64


@dataclass(frozen=True)
class ExtraTime:
    """Parts of the time that somebody needs more, each as a share of it; None: not known.

    Attributes:
        data: waiting for data.
        device: its accelerator still computes when its host is done.
        cpu: the thread that runs backward is on a core.
        core: it waits for one.
        threads: what the other threads of its process compute more.
        disk: it waits for a disk, as far as looks at it and its page faults tell.
        at_a_line: most of the time goes by at a line where nobody else is. Who waits for a core there does so for what
            it does there: other programs make nobody run another line.
        waits_per_cpu: how long somebody waits for a core here for each ms of computing (`waits_per_cpu`).
        cpu_times: the processor time over what is usual; None: not known.
    """

    data: float | None = None
    device: float | None = None
    cpu: float | None = None
    core: float | None = None
    threads: float | None = None
    disk: float | None = None
    at_a_line: bool = False
    waits_per_cpu: float = 0.0
    cpu_times: float | None = None

    @property
    def computing(self) -> float:
        """What it computes more, with the waits for a core that so much computing brings.

        None of it is its own where it waits for even longer than it computes beyond that: a program on its core is in
        its caches as well, and makes the same work take longer.
        """
        on_core, waits = max(0.0, self.cpu or 0.0), max(0.0, self.core or 0.0)
        brought = min(waits, self.waits_per_cpu * on_core)
        is_shared = self.cpu_times is not None and self.cpu_times <= SHARED_TIMES
        return 0.0 if is_shared and waits - brought > on_core else on_core + brought

    @property
    def waiting(self) -> float:
        """What it waits more for a core beyond that."""
        return max(0.0, (self.core or 0.0) + max(0.0, self.cpu or 0.0) - self.computing)

    @property
    def cause(self) -> Cause | None:
        """The largest part; None: it may be another one, which is not known."""
        data, device, disk = (max(0.0, each or 0.0) for each in (self.data, self.device, self.disk))
        # A loader without workers computes while the loop waits for it: that is of its data.
        computing = min(self.computing, max(0.0, 1.0 - data))
        left, waiting = max(0.0, 1.0 - data - device - computing - self.waiting), self.waiting
        # A thread that waits for the others of its process sleeps, or waits for the core that they are on.
        threads = min(max(0.0, self.threads or 0.0), left + waiting)
        threads = threads if threads > disk else 0.0
        left, waiting = left - min(threads, left), waiting - max(0.0, threads - left)
        on_disk = 2 * disk >= left
        computes = computing + threads
        if self.at_a_line:
            computes, left = (computes + waiting, left) if computes > left else (computes, left + waiting)
            waiting = 0.0
        # After each wait for a disk, a rank waits for a core as well.
        asleep = max(disk, left)
        parts: dict[Cause | None, float] = {
            "data": data,
            "device": device,
            "compute": computes,
            "core": waiting,
            "disk" if on_disk else "blocked": asleep,
        }
        found = max(parts, key=lambda each: parts[each])
        if self.cpu is None and found not in ("data", "device"):
            return "disk" if 2 * disk >= 1.0 else None
        # Without the run-queue delay, a thread that waits for a core and one that sleeps look the same.
        return None if self.core is None and found == "blocked" else found


def waits_per_cpu(mine: tuple[float, float], usual: tuple[float, float]) -> float:
    """How long who computes waits for a core for each ms of it, whoever else is on the machine.

    At least as long as is usual; as long as it does itself, if it computes more than other programs in the same caches
    can make of the usual work.

    Args:
        mine: processor time and waits for a core of whom this is about; any unit.
    """
    of = mine if mine[0] > SHARED_TIMES * usual[0] else usual
    return max(0.0, of[1]) / of[0] if of[0] > 0.0 else 0.0


def share(more: Float64, extra: Float64) -> float | None:
    """How much of what is extra in these steps is what there is more of a part; None: too few are known.

    Args:
        more: of the part, step by step, in ms; NaN = not known.
    """
    known = ~np.isnan(more)
    if np.count_nonzero(known) < LEAST_STEPS or not extra[known].sum() > 0.0:
        return None
    return float(more[known].sum() / extra[known].sum())


def part(some_ms: float, extra_ms: float) -> float:
    """What share of the extra time that is; 0 where there is none: who computes more need not be later."""
    return some_ms / extra_ms if extra_ms > 0.0 else 0.0


def stretch(usual_ms: float, extra_ms: float, *shares: float | None) -> float:
    """How many times as long a rank takes for anything, if all that its processor makes longer is longer alike.

    Waiting for a core comes in proportion to computing, and so does what a slower processor or larger inputs take more;
    sleeping and waiting for a disk come at one line.

    Args:
        shares: parts of that on a core and waiting for one, as far as they are known.
    """
    part = min(1.0, sum(max(0.0, each or 0.0) for each in shares))
    return 1.0 + part * max(0.0, extra_ms) / usual_ms if usual_ms > 0.0 else 1.0


def computing(who: str, more: str, cpu_share: float | None, core_share: float | None) -> str:
    """In words: for how much of the extra time somebody computes, and how much passes until there is a core for that.

    Args:
        who: "it" or "they".
        more: what the extra time is called.
        cpu_share: the part on a core.
    """
    one = "s" if who == "it" else ""
    core = percent(max(0.0, core_share or 0.0))
    waits = "" if core == percent(0.0) else f", and wait{one} for a processor core for {core}"
    return f"{who} compute{one} for {percent(min(1.0, cpu_share or 0.0))} of {more}{waits}"


@dataclass(frozen=True, eq=False)
class Lateness:
    """The ranks side by side, in the steps in which the own time of all is known.

    Attributes:
        ranks: of the columns.
        rows: of the step matrix.
        step: the number of each row's step.
        wall: of each step; ms.
        extra: by how much each rank needs longer than the ranks' lower median, or than the rank `than`; ms,
            [steps, ranks].
        waits: the same of the time that it waits for data.
        shares: the median of `extra` as a share of a step, rank by rank.
        than: the column of the rank that all are compared with; None: with their lower median.
    """

    ranks: tuple[int, ...]
    rows: Int64
    step: Int64
    wall: Float64
    extra: Float64
    waits: Float64
    shares: tuple[Share, ...]
    than: int | None = None

    def more(self, values: Float64) -> Float64:
        """How much more of something each rank has, compared in the same way; [steps, ranks]."""
        return extra_ms(values) if self.than is None else np.asarray(values - values[:, self.than, None])

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.step)


def lateness(steps: StepMatrix, than: int | None = None) -> Lateness:
    """The lateness of every rank in the judged steps; no steps where own times are not known."""
    rows = np.flatnonzero(~np.isnan(steps.own).any(axis=1))
    nothing = np.empty((0, len(steps.ranks)))
    found = Lateness(steps.ranks, rows, steps.step[rows], step_walls(steps)[rows], nothing, nothing, (), than)
    extra, waits = nothing, nothing
    if len(rows):
        extra, waits = found.more(steps.own[rows]), found.more(np.nan_to_num(steps.data_wait[rows]))
    shares = tuple(share_of_median(column, steps.wall_ms) for column in extra.T)
    return replace(found, extra=extra, waits=waits, shares=shares)


@dataclass(frozen=True, eq=False)
class Episodes:
    """The steps `at` in which `rank` was later than usual and than the others, by `lead_ms`.

    `steps` is how many were looked at, `share` the part of the time that went that way. With `core_waits_known`, time
    in which a rank only waited for a core does not count. `collector_share`: how much of it the garbage collector
    took; None = not known. `by_chance`: what can hit any rank may have hit this one so often. `few`: only two
    events did.
    """

    rank: int
    at: Int64
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

    rows: Int64
    lead_ms: Float64
    is_late: Bool
    last: Int64
    core_waits_known: bool
    time_ms: float

    @property
    def share(self) -> float:
        """The part of the time in which the others wait for such a rank."""
        return self.share_of(self.is_late)

    def share_of(self, some: Bool) -> float:
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
        is_late=lead > bounds.event_ms(steps.wall_ms),
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
    one_rank = times >= bounds.NEARLY_ALL * (times + others) or share >= bounds.NEARLY_ALL * late.share
    long = hit.any() and float(lead[hit].min()) >= bounds.LONG * steps.wall_ms and not others
    least = bounds.SEVERAL - 1 if long else bounds.SEVERAL
    if times < least or not one_rank or share < bounds.MATTERS_SHARE:
        return None
    at = steps.step[rows[hit]]
    # Neighbouring steps are one event: what hits a rank by chance often lasts for some.
    events = 1 + int(np.count_nonzero(np.diff(at) > 1))
    by_chance = False
    if period(at) is None:
        by_chance = chance_of_one(events, others, len(steps.ranks)) > bounds.CHANCE
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
        few=events < bounds.SEVERAL and period(at) is None,
    )


def chance_of_one(events: int, others: int, ranks: int) -> float:
    """The probability that of so many events that can hit any rank alike at least `events` hit the same one."""
    return min(1.0, ranks * at_least(events, events + others, 1 / ranks))
