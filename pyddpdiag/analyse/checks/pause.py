"""Training pauses: for a phase that the program names, or on all ranks at once and at regular intervals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import (
    CHANCE,
    HEALTHY_SHARE,
    LARGE_SHARE,
    MOST,
    NEARLY_ALL,
    SEVERAL,
    event_ms,
)
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.extra_time import share, stretch
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.rhythm import chance, chance_alike, period
from pyddpdiag.analyse.step_matrix import column_medians, median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding, words
from pyddpdiag.model.words import milliseconds, percent
from pyddpdiag.output import clean

ADVICE: Final = (
    "make them rarer, or run them beside training (persistent_workers=True, asynchronous checkpoints)."
)


def _look(view: RunView) -> Iterator[Finding]:
    rows = np.flatnonzero(~np.isnan(view.judged.own).any(axis=1))
    if not view.judged.can_judge or not len(rows):
        return
    # A pause may fall between two steps, outside every step's wall time.
    took = view.step_spans[rows].mean(axis=1)
    for name, spent in view.phase_times.items():
        yield from _phase(view, name, spent[rows], rows, float(took.sum()))
    between = _epochs(view)
    if between is not None:
        yield between
    else:
        yield from _unnamed(view, rows, took)


def _phase(
    view: RunView, name: str, spent: Float64, rows: npt.NDArray[np.int64], total: float
) -> Iterator[Finding]:
    """The phase of this name, of which each rank has `spent` so much before each step's all-reduces."""
    # The others wait for the rank that is in it longest.
    longest = spent.max(axis=1)
    hit = longest > event_ms(view.judged.wall_ms)
    times, lost = int(np.count_nonzero(hit)), float(longest[hit].sum())
    if times < SEVERAL or lost < HEALTHY_SHARE * total:
        return
    by_rank = spent[hit].sum(axis=0)
    place = int(by_rank.argmax())
    others = np.delete(by_rank, place)
    alone = bool(len(others) and (others < HEALTHY_SHARE * by_rank[place]).all())
    rank = view.judged.ranks[place] if alone else None
    typical, phase = median(longest[hit]), clean(name)
    where = view.lines.in_phase(name, [view.judged.ranks[place]] if alone else view.judged.ranks)
    who = f"rank {rank} pauses and the others wait for it" if alone else "the ranks pause"
    yield Finding(
        kind="pause",
        severity="warning",
        message=f"{who}: {milliseconds(typical)} in phase '{phase}', {times} times; {percent(lost / total)} of "
        "the time is lost to it." + (f" {where.says('the pause')}." if where else ""),
        confidence="high",
        rank=rank,
        where=str(where.line) if where else None,
        since_step=int(view.judged.step[rows[hit]][0]),
        cost_ms=lost / len(rows),
        evidence={
            "phase": phase,
            "pause_ms": typical,
            "times": times,
            "share": lost / total,
            **(where.facts if where else {}),
        },
        change_mind="The phase does something that training needs at that moment.",
        advice=f"Look at what phase '{phase}' does: {ADVICE}",
    )


def _regular(step: npt.NDArray[np.int64], paused: Float64, hit: npt.NDArray[np.bool_]) -> bool:
    """Whether the pauses that are `hit` have a rhythm that chance makes with a probability of `CHANCE` at most.

    Args:
        step: the number of each step.
        paused: how long it paused.
        hit: whether that is a pause.
    """
    at, long = step[hit], paused[hit]
    if period(at) is None:
        return False
    # Steps that reduce, not step numbers: accumulation makes those of chance equally far apart, too.
    regular = chance(np.flatnonzero(hit))
    # A few are no chance if they are equally long as well. Twice: it is one more way to look regular.
    return min(1.0, 2 * chance_alike(long)) * regular <= CHANCE


def _are_evaluations(view: RunView, lost_ms: float) -> bool:
    """Whether most of the pauses is what `full_evaluation` tells of."""
    return 1e3 * sum(one.took_s for one in view.full_evaluations) >= MOST * lost_ms > 0.0


def _epochs(view: RunView) -> Finding | None:
    """All ranks take longer than usual wherever a loader came to its end, in no phase that the program names."""
    found = view.meetings
    rows = found.epoch & found.usual_rows
    paused = (found.beyond - found.phase).min(axis=1)[rows] if len(found.step) else np.empty(0)
    lost = float(np.maximum(paused, 0.0).sum())
    if not len(paused) or np.mean(paused > event_ms(view.judged.wall_ms)) < NEARLY_ALL:
        return None
    share = lost / (1e3 * found.run_s) if found.run_s else 0.0
    if share < HEALTHY_SHARE or _are_evaluations(view, lost):
        return None
    waits = float(found.data[rows].min(axis=1).sum())
    # A loader's workers begin while it is made and its first batch is waited for; they also end there.
    loader = waits >= LARGE_SHARE * lost
    what = (
        f", {percent(min(1.0, waits / lost))} of it until the loader brings its first batch" if loader else ""
    )
    times = len(paused)
    cure = (
        "DataLoader(..., persistent_workers=True) keeps the loader's workers from one epoch to the next, where it has "
        "any (num_workers)."
    )
    return Finding(
        kind="pause",
        severity="warning",
        message=f"all ranks pause together between epochs: {milliseconds(median(paused))}, "
        f"{words.times(times)}{what}; {percent(share)} of the time is lost to it.",
        confidence="high" if times > 1 else "medium",
        since_step=int(found.step[rows][0]),
        cost_ms=lost / view.judged.steps,
        cost_s=lost / 1e3,
        evidence={
            "pause_ms": median(paused),
            "times": times,
            "share": share,
            "data_wait_ms": waits / times,
            "between_epochs": 1,
        },
        change_mind="What the ranks do there is wanted as often.",
        advice=cure
        if loader
        else f"Evaluation and checkpoints do this: {ADVICE} {view.advice.phases()} tells which it is.",
    )


def _unnamed(view: RunView, rows: npt.NDArray[np.int64], took: Float64) -> Iterator[Finding]:
    """Pauses that no phase explains: every rank takes longer than usual, at regular intervals."""
    own = view.judged.own[rows]
    delay = np.nan_to_num(view.usage.run_delay[rows])
    if view.spins:
        # Threads that spin for want of a core hold all ranks up as well, as often as chance has it.
        own = own - np.nan_to_num(view.usage.cpu[rows]) - delay
    paused = (own - column_medians(own)).min(axis=1)
    hit = paused > event_ms(view.judged.wall_ms)
    if np.count_nonzero(hit) < SEVERAL:
        return
    # A slow step for another reason hides the rhythm of much longer ones: those alone are looked at. They are chosen by
    # their length, which says nothing about when chance puts them.
    alike = hit & (paused >= MOST * np.sort(paused)[-SEVERAL])
    if not _regular(view.judged.step[rows], paused, alike):
        if not view.spins and view.slower is None:
            yield from _irregular(view, rows, took, paused, own - delay)
        return
    hit = alike
    times = int(np.count_nonzero(hit))
    at = view.judged.step[rows[hit]]
    every = period(at)
    if every is None:
        return
    lost, total = float(paused[hit].sum()), float(took.sum())
    if _are_evaluations(view, lost):
        return
    when, until = "", None
    if lost < HEALTHY_SHARE * total:
        # Only in a part of the run: from the first to the last, and as long again as between two.
        first, last = np.flatnonzero(hit)[[0, -1]]
        total = float(took[first : last + round(every)].sum())
        if lost < HEALTHY_SHARE * total or chance(at) > CHANCE:
            return
        until = None if last + 2 * every >= len(rows) else int(at[-1])
        when = f" from step {at[0]} on" if until is None else f" in steps {at[0]} to {until}"
    typical = median(paused[hit])
    where = view.lines.more_in(at, view.judged.step[rows[~hit]])
    common = f"Checkpoints, evaluation and new loader workers do this: {ADVICE}"
    yield Finding(
        kind="pause",
        severity="warning",
        message=f"all ranks pause together{when}: {milliseconds(typical)} about every {every:.0f} steps, {times} "
        f"times; {percent(lost / total)} of the time{' there' if when else ''} is lost to it."
        + (f" {where.says('the pauses')}." if where else ""),
        confidence="medium",
        where=str(where.line) if where else None,
        since_step=int(at[0]),
        cost_ms=lost / len(rows),
        evidence={
            "pause_ms": typical,
            "every_steps": every,
            "times": times,
            "share": lost / total,
            "until_step": until,
            **(where.facts if where else {}),
        },
        change_mind="These steps do more work on purpose, for instance with longer inputs.",
        advice=where.advice(f". {common}")
        if where
        else f"{common} {view.advice.phases()} tells which it is.",
    )


def _irregular(
    view: RunView, rows: npt.NDArray[np.int64], took: Float64, paused: Float64, own: Float64
) -> Iterator[Finding]:
    """Long steps in no rhythm, in which all ranks do the same: other programs have no line of the script.

    Args:
        view: of the run.
        rows: of the steps.
        took: what they took.
        paused: by how much all ranks took longer than usual in them.
        own: what each rank needed without its waits for a core. With more to compute come more of these.
    """
    itself = (own - column_medians(own)).min(axis=1)
    hit = itself > event_ms(view.judged.wall_ms)
    times, lost, total = int(np.count_nonzero(hit)), float(paused[hit].sum()), float(took.sum())
    if times < SEVERAL or lost < HEALTHY_SHARE * total or _are_evaluations(view, lost):
        return
    at, rest = view.judged.step[rows[hit]], view.judged.step[rows[~hit]]
    usual = float(np.median(own[~hit]))
    # With larger inputs they would take longer at every line. Where nobody knows what they computed, all may be that.
    computed = share(view.usage.cpu[rows][hit].min(axis=1), itself[hit])
    longer = stretch(usual, median(itself[hit]), 1.0 if computed is None else computed)
    where = view.lines.more_in(at, rest) if len(rest) else None
    # What calls something that no usual step does needs no such proof.
    if where is not None and not where.cure:
        where = view.lines.more_in(at, rest, times=longer)
    if where is None:
        return
    typical = median(paused[hit])
    yield Finding(
        kind="pause",
        severity="warning",
        message=f"all ranks pause together now and then: {milliseconds(typical)} in {times} of {len(rows)} steps, "
        f"in no rhythm; {percent(lost / total)} of the time is lost to it. {where.says('the pauses')}.",
        confidence="medium",
        where=str(where.line),
        since_step=int(at[0]),
        cost_ms=lost / len(rows),
        evidence={"pause_ms": typical, "times": times, "share": lost / total, **where.facts},
        change_mind="These steps do more work on purpose.",
        advice=where.advice(f": what does it do then? {ADVICE.capitalize()}"),
    )


CHECK = Check(("pause",), _look, per_group=True, rests_on="own times")
