"""Which ranks are late, in a typical step or in a part of the run, and what they do in the extra time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import (
    BUSY_LOAD,
    FAULT_MS,
    HEALTHY_SHARE,
    LARGE_SHARE,
    LEAST_MS,
    LEAST_STEPS,
    QUIET_SHARE,
    SEVERAL,
    SHARED_TIMES,
    SURELY_EARLY,
    WINDOW,
    Z99,
    confidence,
    least_ms,
)
from pyddpdiag.analyse.core_waits import load_per_core, spins
from pyddpdiag.analyse.extra_time import ExtraTime, part, share, waits_per_cpu
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.hot_lines import HotLine
from pyddpdiag.analyse.lateness import Lateness
from pyddpdiag.analyse.lateness import lateness as lateness_of
from pyddpdiag.analyse.lines import RunLines, Where
from pyddpdiag.analyse.settings import by_host, fewer_threads
from pyddpdiag.analyse.step_matrix import StepMatrix, extra_ms, lower_median, median
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.analyse.windows import Span, Stretches, by_window, joined, stretches
from pyddpdiag.model.findings import Cause, Confidence
from pyddpdiag.model.sidecar import Sidecar

SHORT: Final = 2 * WINDOW
"""In a shorter stretch it may have been any rank's turn to be slowed by something else: it must be late by more."""


@dataclass(frozen=True)
class LateRank:
    """One rank that is late; milliseconds per step.

    `span`: only in these parts of the run; None: in a typical step. All but `cost_ms` is about those parts, and
    `beside` says how late it is before and after.

    `extra_ms` is the median of what it needs more than the ranks' lower median, `sure_ms` what that median
    exceeds with 99% confidence, `often` the share of `steps` in which it is late, `step_ms` a typical step. `data_ms`
    is its extra waiting for data, and `extra` tells what all of the extra time is spent for. `disk_ms`: for how much
    longer than the others it waits for a disk in a step, as far as looks at its thread tell; None: they do not.
    `major_faults`: how many more pages of memory than the others it has to read from a disk in a step; None = not
    known. `other_threads`: what the other threads of its process compute in a step, and those of the others' do, in ms,
    where they take most of the extra time. `threads`: torch has so many there and at least so many elsewhere; None: not
    fewer. `than`: most of the ranks are late, compared with this
    rank alone; None: compared with the ranks' lower median.
    `others_wait_ms`: what the other ranks of its machine wait for a core because of other programs, in the steps in
    which it is late; None: there are none, or it is not known. `load` is the load average of that machine for each core
    that its ranks may use. `cost_ms` is an average over the whole run: costs are compared with each other.
    `computes_more_ms`: it is named for the processor time that it uses more than the others in a typical step, though
    by its own time nobody is surely late, because the others wait for cores; it is the last one in the share `often` of
    the steps then. 0: for its lateness. `spins`: where it seems to compute, its threads may have spun for want of
    cores.
    """

    rank: int
    span: Stretches | None
    extra_ms: float
    sure_ms: float
    often: float
    steps: int
    step_ms: float
    since_step: int
    until_step: int | None
    data_ms: float
    extra: ExtraTime
    threads: tuple[int, int] | None
    load: float | None
    others_wait_ms: float | None
    cost_ms: float
    computes_more_ms: float = 0.0
    spins: bool = False
    alone_at: Where | None = None
    other_threads: tuple[float, float] | None = None
    than: int | None = None
    disk_ms: float | None = None
    major_faults: float | None = None
    beside: Mapping[str, float | int | None] = field(default_factory=dict)

    @property
    def confidence(self) -> Confidence:
        """`low` where a healthy rank may be as late: because of what else its machine does."""
        # That it is the last one is sure, and that it is late by so much is not.
        if not self.span and self.sure_ms <= least_ms(self.step_ms):
            return "low"
        # A rank that sleeps or waits for data has nothing to do with the machine's load.
        if self.spins and self.cause in ("compute", "core", None):
            return "low"
        works = self.cause == "compute" and (self.extra.cpu_times or 0.0) > SHARED_TIMES
        if self.cause in ("compute", "core", None) and not (works and self.than is None):
            # On a busy machine it may be any rank's turn to wait; and what lasts for a while may be over.
            if self.computes_for_a_while or (self.cause == "core" and (self.is_busy or self.span)):
                return "low"
            if self.than is not None and self.sure_ms < SURELY_EARLY * self.step_ms:
                return "low"
            if self.sure_ms < (LARGE_SHARE if self.is_busy else QUIET_SHARE) * self.step_ms:
                return "low"
        return "medium" if self.span else confidence(self.steps)

    @property
    def computes_for_a_while(self) -> bool:
        """Whether it computes for longer in a part of the run.

        Neighbours of a virtual machine are seen by nobody in it: they slow one core for some seconds.
        """
        return self.cause == "compute" and self.span is not None

    @property
    def is_busy(self) -> bool:
        """Whether the machine has more work than it can do, while this rank is late.

        The other ranks there tell it at once; one that has a core to itself does not, and the load average does. That
        is of the last minute, and says nothing of a part of a run.
        """
        if self.load is not None and self.load > BUSY_LOAD:
            return True
        if self.others_wait_ms is None:
            return self.span is not None
        return self.others_wait_ms > least_ms(self.step_ms)

    @property
    def waits_for_cores(self) -> bool:
        """Whether it spends most of the extra time waiting for a core."""
        return self.cause == "core" or (self.extra.core or 0.0) >= 0.5

    @property
    def is_by_other_threads(self) -> bool:
        """Whether the other threads of its process take the extra time."""
        # Of a late device, the thread that waits for it spins.
        return self.other_threads is not None and self.cause == "compute"

    @property
    def cause(self) -> Cause | None:
        """What it does in the extra time; None: the trace does not tell."""
        if self.computes_more_ms:
            return "compute"
        if self.extra.cpu is None and self.extra.cause is None and self.threads:
            return "compute"
        return self.extra.cause

    @property
    def waits_for_pages(self) -> bool:
        """Whether most of what it waits for a disk are pages of memory."""
        return self.cause == "disk" and FAULT_MS * (self.major_faults or 0.0) > (self.disk_ms or 0.0)


def late_ranks(
    steps: StepMatrix,
    lateness: Lateness,
    usage: UsageMatrix,
    foreign: Float64,
    sidecars: Mapping[int, Sidecar],
    lines: RunLines,
    hot: Sequence[HotLine] = (),
) -> tuple[LateRank, ...]:
    """The ranks that are late, the costliest first.

    Args:
        foreign: what they wait for a core because of other programs; [steps, ranks] in ms.
        hot: what takes a part of each step outside of the training itself.
    """
    if len(steps.ranks) < 2 or len(lateness) < LEAST_STEPS or not steps.can_judge:
        return ()

    def described(against: Lateness, place: int, span: Stretches | None = None) -> LateRank:
        return _describe(steps, against, usage, foreign, sidecars, place, span)

    found = [described(lateness, *each) for each in _places(steps, lateness, usage)]
    if not found:
        found = [
            replace(
                described(lateness, place),
                computes_more_ms=more_ms,
                often=float(_is_last(lateness, place).mean()),
                cost_ms=float(np.maximum(lateness.extra[:, place], 0.0).mean()),
            )
            for place, more_ms in _computing_more(steps, lateness, usage)
        ]
    if not found:
        against, places = _most_are_late(steps, lateness, usage)
        found = [described(against, place) for place in places]
    spin = spins(steps, usage, sidecars)
    found = [replace(_with_lines(late, lateness, lines, hot), spins=spin) for late in found]
    return tuple(sorted(found, key=lambda late: -late.cost_ms))


def _with_lines(late: LateRank, lateness: Lateness, lines: RunLines, hot: Sequence[HotLine]) -> LateRank:
    """With what the looks at its thread saw: of waiting for a disk, and of a line where nobody else is."""
    rows = late.span.rows if late.span else np.arange(len(lateness))
    ms = lines.more_on_disk_ms(late.rank, lateness.step[rows]) / len(rows)
    seen = None if np.isnan(ms) else float(ms)
    waits = max(seen or 0.0, FAULT_MS * (late.major_faults or 0.0))
    alone = sorted((one for one in hot if one.ranks == (late.rank,)), key=lambda one: -one.of_step[late.rank])
    alone_ms = sum(one.of_step[late.rank] for one in alone) * late.step_ms
    extra = replace(
        late.extra, disk=part(waits, late.extra_ms), at_a_line=bool(alone) and 2 * alone_ms >= late.extra_ms
    )
    return replace(
        late,
        disk_ms=seen,
        extra=extra,
        alone_at=replace(alone[0].where, alone=True) if extra.at_a_line else None,
    )


def _places(
    steps: StepMatrix, lateness: Lateness, usage: UsageMatrix
) -> Iterator[tuple[int, Stretches | None]]:
    """The columns of late ranks, each with its part of the run."""
    windows = by_window(lateness.wall)
    usual = np.where(np.isnan(windows), steps.wall_ms, windows)
    threshold = least_ms(steps.wall_ms)
    some_rank_is = sure_median(lateness.extra.max(axis=1)) > threshold
    # What each rank waits longer for a core than the one that waits least.
    delay = usage.run_delay[lateness.rows]
    waits = np.maximum(0.0, np.nan_to_num(delay - np.nanmin(np.nan_to_num(delay), axis=1)[:, None]))
    for place in range(len(lateness.ranks)):
        extra = lateness.extra[:, place]
        if sure_median(extra) > threshold:
            yield place, None
            continue
        span = _stretches(lateness, waits[:, place], usual, place)
        if span:
            yield place, span
        elif some_rank_is and median(extra) > threshold and _is_mostly_last(lateness, place):
            yield place, None


def _stretches(lateness: Lateness, waits: Float64, usual: Float64, place: int) -> Stretches | None:
    """The parts of the run in which a rank is late.

    In a short one it must be later than healthy ranks are on a busy machine, without its `waits` for a core.
    """
    extra = lateness.extra[:, place]
    excess = extra - np.maximum(LEAST_MS, HEALTHY_SHARE * usual)

    def is_later(span: Span) -> bool:
        return sure_median((extra - waits)[span.rows]) > LARGE_SHARE * median(usual[span.rows])

    found = stretches(excess, len(lateness.ranks))
    spans = found.spans if found is not None else ()
    return joined(span for span in spans if len(span) >= SHORT or is_later(span))


def _is_last(lateness: Lateness, place: int) -> Float64:
    """1 for each step in which a rank is the last one, 0 for the others."""
    return np.asarray(lateness.extra.argmax(axis=1) == place, np.float64)


def _is_mostly_last(lateness: Lateness, place: int) -> bool:
    """Whether a rank is the last one in more than half of the steps, with 99% confidence."""
    return sure_median(_is_last(lateness, place)) > 0


def _is_last_too_often(lateness: Lateness, place: int) -> bool:
    """Whether a rank is the last one more often than by its turn, with 99% confidence (normal approximation)."""
    turn, steps = 1 / len(lateness.ranks), len(lateness)
    return float(_is_last(lateness, place).mean()) - turn > Z99 * math.sqrt(turn * (1 - turn) / steps)


def _computing_more(steps: StepMatrix, lateness: Lateness, usage: UsageMatrix) -> Iterator[tuple[int, float]]:
    """The column of a rank that computes more than the others and too often is the last one, and how much more in ms.

    Where the others wait for cores, it is not later than they are by as much.
    """
    cpu = usage.cpu[lateness.rows]
    cpu = cpu[~np.isnan(cpu).any(axis=1)]
    if len(cpu) < LEAST_STEPS:
        return
    for place, more in enumerate(extra_ms(cpu).T):
        if sure_median(more) > least_ms(steps.wall_ms) and _is_last_too_often(lateness, place):
            yield place, median(more)


def _most_are_late(steps: StepMatrix, lateness: Lateness, usage: UsageMatrix) -> tuple[Lateness, list[int]]:
    """The columns of late ranks where more than half of the ranks are, so that their lower median is late, too.

    All are compared with the earliest one. By how much healthy ranks are late on a busy machine does not count, nor
    does what they wait for a core.
    """
    earliest = int(np.median(steps.own[lateness.rows], axis=0).argmin())
    against = lateness_of(steps, earliest)
    threshold = max(LEAST_MS, LARGE_SHARE * steps.wall_ms)
    waits = np.maximum(against.more(np.nan_to_num(usage.run_delay[lateness.rows])), 0.0)
    late = [place for place, extra in enumerate((against.extra - waits).T) if sure_median(extra) > threshold]
    return against, late if 2 * len(late) > len(steps.ranks) and len(late) <= SEVERAL else []


def _describe(
    steps: StepMatrix,
    lateness: Lateness,
    usage: UsageMatrix,
    foreign: Float64,
    sidecars: Mapping[int, Sidecar],
    place: int,
    span: Stretches | None,
) -> LateRank:
    rows = span.rows if span else np.arange(len(lateness))
    extra = lateness.extra[rows, place]
    is_late = extra > least_ms(steps.wall_ms)
    late, mine = lateness.rows[rows][is_late], extra[is_late]
    since, until = span.between(lateness.step) if span else (int(lateness.step[int(is_late.argmax())]), None)
    step_ms = median(lateness.wall[rows]) if span else steps.wall_ms

    def of(values: Float64) -> Float64:
        # Beside a rank of which nothing is known, nobody has more.
        return np.where(np.isnan(values).any(axis=1), np.nan, lateness.more(values)[:, place])

    cpu, delay, beside = usage.cpu[late], usage.run_delay[late], (usage.process_cpu - usage.cpu)[late]
    rest = cpu[:, place] - of(cpu), delay[:, place] - of(delay)
    faults = of(usage.major_faults[late])
    threads = share(of(beside), mine)
    usual = median(rest[0])
    cpu_times = median(cpu[:, place]) / usual if usual > 0.0 else None
    spent = ExtraTime(
        data=part(max(0.0, median(lateness.waits[rows, place])), median(extra)),
        device=share(of(usage.device[late]), mine),
        cpu=share(of(cpu), mine),
        core=share(of(delay), mine),
        # Some of it comes with each run.
        threads=threads if sure_median(of(beside)) > least_ms(step_ms) else None,
        waits_per_cpu=waits_per_cpu(
            (median(cpu[:, place]), median(delay[:, place])), (usual, median(rest[1]))
        ),
        cpu_times=cpu_times,
    )
    by_threads = median(beside[:, place])
    return LateRank(
        rank=lateness.ranks[place],
        span=span,
        extra_ms=median(extra),
        sure_ms=sure_median(extra),
        often=float(np.mean(is_late)),
        steps=len(extra),
        step_ms=step_ms,
        since_step=since,
        until_step=until,
        data_ms=median(lateness.waits[rows, place]),
        extra=spent,
        than=None if lateness.than is None else lateness.ranks[lateness.than],
        threads=fewer_threads(sidecars, lateness.ranks[place]),
        load=load_per_core(steps, usage, sidecars, lateness.rows).get(lateness.ranks[place]),
        others_wait_ms=_others_wait_ms(foreign[late], sidecars, lateness.ranks, place),
        cost_ms=float(np.maximum(extra, 0.0).sum()) / len(lateness) if span else median(extra),
        major_faults=None if np.isnan(faults).all() else float(np.nanmean(faults)),
        other_threads=(by_threads, by_threads - median(of(beside)))
        if (spent.threads or 0.0) > max(0.5, spent.cpu or 0.0)
        else None,
        beside=span.evidence(lateness.extra[:, place], "extra") if span else {},
    )


def _others_wait_ms(
    delay: Float64, sidecars: Mapping[int, Sidecar], ranks: Sequence[int], place: int
) -> float | None:
    """What the other ranks of a rank's machine typically wait for other programs; `delay`: [steps, ranks], ms."""
    mine = ranks[place]
    there = next((each for each in by_host(sidecars, ranks).values() if mine in each), [])
    others = [ranks.index(rank) for rank in there if rank != mine]
    waits = median(lower_median(delay[:, others]))
    return None if np.isnan(waits) else waits
