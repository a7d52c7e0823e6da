"""Why a run cannot be called healthy though nothing was found, and what to record next time."""

from __future__ import annotations

import numpy as np

from pyddpdiag.analyse.bounds import (
    HEALTHY_SHARE,
    LEAST_MS,
    LEAST_STEPS,
    MANY_STEPS,
    MATTERS_SHARE,
    least_ms,
)
from pyddpdiag.analyse.core_waits import saved_ms
from pyddpdiag.analyse.episodes import LateSteps, late_steps
from pyddpdiag.analyse.filing import COLLECTIVE
from pyddpdiag.analyse.grouped import median_at_most
from pyddpdiag.analyse.shares import Share, share_of_median, share_of_sums
from pyddpdiag.analyse.standstill import threshold_ms
from pyddpdiag.analyse.step_matrix import StepMatrix, lower_median, median, step_walls
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.words import count, listed, milliseconds, percent, ranks, seconds, verb


def why_undecided(view: RunView) -> str:
    """Why the run cannot be judged; empty if the evidence excludes a cost of 10% of a step."""
    return _not_seen(view) or _too_little(view) or _unsure(view)


def _not_seen(view: RunView) -> str:
    """Something of the run is not in the traces, or it does not go on."""
    run = view.run
    if run.damaged:
        return (
            "what a damaged trace lacks proves nothing. Copy the files again, or move them out of the folder to "
            "judge the other ranks."
        )
    if not any(len(trace) for trace in run.ranks):
        return "the traces hold no records. Did the run make a training step?"
    if waited := waited_in_vain(view):
        return f"{waited}. Put the traces of all ranks into one folder."
    if view.standstill is not None:
        return (
            f"for {view.standstill.silent_ms / 1e3:.0f} s no rank has recorded anything, and no rank is known to be "
            f"waited for. Does it evaluate or write a checkpoint? If it is stuck, py-spy dump shows where."
        )
    if not len(view.occurrences) and view.collectives:
        return (
            "there are no buckets, so how much of the communication is hidden cannot be judged. FSDP and replicate() "
            "reduce by collectives of their own: the table of other collectives shows what they take and how long each "
            "rank waits there. DistributedDataParallel is recorded by recorder.attach on every rank."
        )
    if not view.pairs:
        how = view.advice.every_rank()
        return f"no bucket's all-reduce has ended on every rank. Record with {how}, for some steps."
    if run.missing_count:
        which = listed(run.missing[:8]) + (
            f" and {run.missing_count - 8} more" if run.missing_count > 8 else ""
        )
        one = run.missing_count == 1
        shown = "the traces that are here show no trouble"
        if view.exposure.is_found:
            shown = f"{'that rank' if one else 'one of those ranks'} may be what the others wait for"
        return (
            f"the {'trace of rank' if one else 'traces of ranks'} {which} of {run.world_size} {'is' if one else 'are'} "
            f"missing; {shown}. Put the traces of all ranks into one folder."
        )
    return ""


def waited_in_vain(view: RunView) -> str:
    """Who waited long in the last operation that they began, perhaps for a rank without a trace; empty: nobody did."""
    absent = set(view.run.missing)
    waits = [
        (operation.open_ms, awaited)
        for awaited in view.awaited
        if absent & set(awaited.unsure)
        for operation in view.in_flight.first
        if operation.rank in awaited.waiting and operation.what == awaited.what
    ]
    open_ms, longest = max(waits, key=lambda each: each[0], default=(0.0, None))
    if longest is None or open_ms < threshold_ms(view.judged.wall_ms):
        return ""
    who, absent_ranks = longest.waiting, view.run.missing
    where = f" of step {longest.step}" if longest.step is not None else ""
    return (
        f"{ranks(who)} {verb(who, 'has', 'have') + ' ' if view.now.is_live else ''}waited {seconds(open_ms / 1e3)} in "
        f"{longest.kind} {longest.what}{where}, the last that {verb(who, 'it', 'they')} began, perhaps for "
        f"{ranks(absent_ranks)}, of which no trace is here"
    )


def _too_little(view: RunView) -> str:
    steps = view.judged
    if not steps.can_judge:
        cut = any(rank.overwritten for rank in view.ranks)
        return f"only {count(steps.steps, 'step')} can be judged, and {LEAST_STEPS} are needed. " + (
            f"The trace was too small for more: {_larger(view)}." if cut else f"Record {MANY_STEPS}."
        )
    if view.now.is_live and steps.steps < MANY_STEPS:
        return (
            f"the run is still going, and only {count(steps.steps, 'step')} can be judged so far; look again after "
            f"{MANY_STEPS}."
        )
    if view.exposure.typical.steps < LEAST_STEPS:
        return (
            "how much of a step waits for buckets is not known: there are too few records of backward passes. "
            f"Record with {view.advice.every_rank()}, in a trace that is large enough ({_larger(view)})."
        )
    if len(steps.ranks) > 1 and len(view.lateness) < LEAST_STEPS:
        return "which rank the others wait for is not known: too few steps follow one another. Record more steps."
    return ""


def _larger(view: RunView) -> str:
    """How to record into a larger trace."""
    wanted = "use a larger capacity_mb"
    how = view.advice.recorder("capacity_mb=...").rstrip(",")
    return f"{wanted}: {how}" if view.advice.recorded_by else wanted


def _unsure(view: RunView) -> str:
    """What may cost 10% of a step, and may not."""
    steps, exposure = view.judged, view.exposure
    if exposure.typical.at_most >= HEALTHY_SHARE and median_at_most(exposure.least) >= LEAST_MS:
        return _open(exposure.typical, exposure.median_step_ms, "communication holds up")
    if exposure.sums.value >= HEALTHY_SHARE and exposure.mean_ms >= LEAST_MS:
        return (
            f"communication holds up {percent(exposure.sums.value)} of the time, most of it in a few steps (a "
            f"typical one {milliseconds(exposure.typical_ms)}), too few to tell whether that goes on. Record about "
            f"{exposure.sums.steps_to_tell(HEALTHY_SHARE) or 10 * exposure.sums.steps} steps."
        )
    other = share_of_median(view.held_up.ms, steps.wall_ms)
    if _may_matter(other, steps):
        return _open(other, steps.wall_ms, f"{_collectives(view)} hold up")
    for rank, share in zip(view.lateness.ranks, view.lateness.shares, strict=True):
        if _may_matter(share, steps):
            return _open(share, steps.wall_ms, f"rank {rank} is late by")
    late = late_steps(steps, view.usage)
    if late is not None and late.share >= HEALTHY_SHARE:
        return (
            f"the ranks wait {percent(late.share)} of the time for one that is late in a few steps"
            f"{_mostly(late, steps)}; whether that goes on, and whether it is always the same one, is not known. "
            f"Record about {10 * steps.steps} steps."
        )
    # What the ranks' own threads take from each other is so on this machine.
    waits = saved_ms(steps.own, view.foreign_waits)
    core = share_of_median(waits, steps.wall_ms)
    if _may_matter(core, steps):
        return _open(core, steps.wall_ms, "waiting for processor cores holds up")
    of_sums = share_of_sums(waits, step_walls(steps))
    if of_sums.value >= HEALTHY_SHARE and of_sums.value * steps.wall_ms >= LEAST_MS:
        return (
            f"waiting for processor cores holds up {percent(of_sums.value)} of the time, most of it in a few steps: "
            "another load on the machine does this, and whether it goes on is not known. Look at the machine's load "
            "(top), and record again without it."
        )
    data = share_of_median(lower_median(steps.data_wait), steps.wall_ms)
    if _may_matter(data, steps):
        return _open(data, steps.wall_ms, "the ranks wait for data for")
    return _unexplained(view)


def _collectives(view: RunView) -> str:
    """Other collectives than buckets, with the one that takes most and the line that is mostly in them."""
    calls, where = view.held_up.heaviest, view.lines.most_of(view.judged.step, COLLECTIVE)
    if calls is None:
        return "other collectives"
    at = f" at {where.line}" if where else ""
    return f"other collectives than buckets ({calls.per_step:g} {calls.name} a step{at})"


def _unexplained(view: RunView) -> str:
    """What is left of a step by all that is known of it: where that is much, nobody knows that the run is healthy."""
    steps = view.judged
    known = np.flatnonzero(~np.isnan(steps.own).any(axis=1))
    if len(known) < LEAST_STEPS:
        return ""
    elsewhere = view.exposure.least + np.maximum(view.held_up.ms, view.held_up.in_calls_ms)
    # What the program names is known, too.
    spent = sum(view.phase_times.values(), steps.own)
    rest = (step_walls(steps) - elsewhere)[known] - spent[known].max(axis=1)
    typical = median(rest)
    if not typical > least_ms(steps.wall_ms):
        return ""
    return (
        f"{milliseconds(typical)} of a step of {milliseconds(steps.wall_ms)} go by in nothing that was recorded: not "
        "in the slowest rank's own part of a step, nor in communication. Name what the loop does there: "
        f"{view.advice.phases().rstrip(',')}."
    )


def _mostly(late: LateSteps, steps: StepMatrix) -> str:
    """Which rank that is in most of these steps."""
    times = np.bincount(late.last[late.is_late], minlength=len(steps.ranks))
    place, of_all = int(times.argmax()), int(times.sum())
    if 2 * times[place] <= of_all:
        return ""
    last = int(steps.step[late.rows[late.is_late & (late.last == place)][-1]])
    return f", in {times[place]} of {count(of_all, 'time')} for rank {steps.ranks[place]} (at last in step {last})"


def _may_matter(share: Share, steps: StepMatrix) -> bool:
    return share.at_most >= HEALTHY_SHARE and share.at_most * steps.wall_ms >= LEAST_MS


def _open(share: Share, step_ms: float, what: str) -> str:
    low, high = (milliseconds(max(0.0, bound) * step_ms) for bound in (share.at_least, share.at_most))
    # In a short step it is a time that matters, and no share.
    bound = max(HEALTHY_SHARE, LEAST_MS / step_ms)
    needed = share.steps_to_tell(bound)
    said = f"{what} {low} to {high} of a step of {milliseconds(step_ms)}"
    if share.at_least >= bound:
        return f"{said}, more than {percent(bound)} of it, and what it comes from is not sure."
    if needed is None:
        return f"{said}: about {percent(bound)} of it, and more steps would hardly show whether it is more or less."
    return (
        f"{said}, and {count(share.steps, 'step')} are too few to tell whether that is {percent(bound)} of it. "
        f"Record about {needed} steps."
    )


def healthy_words(view: RunView) -> str:
    """What a healthy run's numbers are."""
    steps, exposure = view.judged, view.exposure
    # The minimum over a step's ranks is communication; a rank's waiting beyond that is for other ranks.
    most = max(float(np.nanmedian(waited)) for waited in steps.exposed.T)
    said = (
        f"communication itself holds up {milliseconds(exposure.typical_ms)} of a step of "
        f"{milliseconds(exposure.median_step_ms)} ({percent(exposure.typical.value)}); with waiting for each other, "
        f"a rank waits up to {milliseconds(most)} after backward"
    )
    if len(steps.ranks) > 1:
        late = max(share.value for share in view.lateness.shares) * steps.wall_ms
        said += f", and no rank is late (at most {milliseconds(late)})"
    waits = median(saved_ms(steps.own, view.usage.run_delay))
    if waits >= MATTERS_SHARE * steps.wall_ms:
        said += f"; the ranks wait for cores for {milliseconds(waits)}, which other threads of theirs take"
    if np.isnan(steps.data_wait).all():
        said += "; whether the ranks wait for data was not recorded (recorder.steps)"
    return said
