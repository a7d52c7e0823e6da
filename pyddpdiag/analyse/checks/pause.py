"""Training pauses: for a phase that the program names, for Python's garbage collector, or on all ranks at once and at
regular intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.chance import chance, chance_alike, period
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.episodes import share, stretch
from pyddpdiag.analyse.grouped import Bool, Float64, Int64
from pyddpdiag.analyse.lines import Where, where_of
from pyddpdiag.analyse.step_matrix import column_medians, median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import words
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.lines import COLLECTED
from pyddpdiag.model.words import milliseconds, percent, ranks
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
    yield from _together(view, rows, took)


def _phase(view: RunView, name: str, spent: Float64, rows: Int64, total: float) -> Iterator[Finding]:
    """The phase of this name, of which each rank has `spent` so much before each step's all-reduces."""
    # The others wait for the rank that is in it longest.
    longest = spent.max(axis=1)
    hit = longest > bounds.event_ms(view.judged.wall_ms)
    times, lost = int(np.count_nonzero(hit)), float(longest[hit].sum())
    if times < bounds.SEVERAL or lost < bounds.HEALTHY_SHARE * total:
        return
    by_rank = spent[hit].sum(axis=0)
    place = int(by_rank.argmax())
    others = np.delete(by_rank, place)
    alone = bool(len(others) and (others < bounds.HEALTHY_SHARE * by_rank[place]).all())
    rank = view.judged.ranks[place] if alone else None
    typical, phase = median(longest[hit]), clean(name)
    who = f"rank {rank} pauses and the others wait for it" if alone else "the ranks pause"
    found = Finding(
        kind="pause",
        severity="warning",
        message=f"{who}: {milliseconds(typical)} in phase '{phase}', {times} times; {percent(lost / total)} of "
        "the time is lost to it.",
        confidence="high",
        rank=rank,
        since_step=int(view.judged.step[rows[hit]][0]),
        cost_ms=lost / len(rows),
        evidence={"phase": phase, "pause_ms": typical, "times": times, "share": lost / total},
        change_mind="The phase does something that training needs at that moment.",
        advice=f"Look at what phase '{phase}' does: {ADVICE}",
    )
    mine = [view.judged.ranks[place]] if alone else view.judged.ranks
    yield with_line(found, view.lines.in_phase(name, mine), "the pause")


def _rhythm(step: Int64, paused: Float64, hit: Bool) -> float | None:
    """The number of steps between the pauses that are `hit`; None: chance makes such a rhythm with a probability of
    more than `CHANCE`.
    """
    # Steps that reduce, not step numbers: accumulation makes those of chance equally far apart, too.
    regular = chance(np.flatnonzero(hit))
    # A few are no chance if they are equally long as well. Twice: it is one more way to look regular.
    return period(step[hit]) if min(1.0, 2 * chance_alike(paused[hit])) * regular <= bounds.CHANCE else None


def _are_evaluations(view: RunView, lost_ms: float) -> bool:
    """Whether most of the pauses is what `full_evaluation` tells of."""
    return 1e3 * sum(one.took_s for one in view.full_evaluations) >= bounds.MOST * lost_ms > 0.0


def _worth(lost_ms: float, total_ms: float) -> bool:
    return lost_ms >= bounds.HEALTHY_SHARE * total_ms > 0.0


def _together(view: RunView, rows: Int64, took: Float64) -> Iterator[Finding]:
    """All ranks take longer than usual at once, in no phase that the program names."""
    steps, met = view.judged, view.meetings
    at, own, total = steps.step[rows], steps.own[rows], float(took.sum())
    bound, run_ms = bounds.event_ms(steps.wall_ms), 1e3 * met.run_s
    paused, hit = _beyond(own), np.isin(at, met.step[met.epoch])
    where: Where | None = None
    facts: dict[str, float | None] = {}
    when, there, cure = (
        "between epochs",
        "",
        f"Checkpoints, evaluation and new loader workers do this: {ADVICE}",
    )
    advice = f"{cure} {view.advice.phases()} tells which it is."
    lost = float(np.maximum(paused[hit], 0.0).sum())
    of_epochs = hit.any() and np.mean(paused[hit] > bound) >= bounds.NEARLY_ALL and _worth(lost, run_ms)
    if of_epochs and not _are_evaluations(view, lost):
        total, how = run_ms, words.times(int(np.count_nonzero(hit)))
        waits = float(np.nan_to_num(steps.data_wait[rows][hit]).min(axis=1).sum())
        facts = {"data_wait_ms": waits / np.count_nonzero(hit), "between_epochs": 1}
        # A loader's workers begin while it is made and its first batch is waited for; they also end there.
        if waits >= bounds.LARGE_SHARE * lost:
            how += f", {percent(min(1.0, waits / lost))} of it until the loader brings its first batch"
            advice = (
                "DataLoader(..., persistent_workers=True) keeps the loader's workers from one epoch to the next, where "
                "it has any (num_workers)."
            )
        else:
            where = view.lines.more_in(at[hit], at[~hit])
    else:
        of_epochs, delay = False, np.nan_to_num(view.usage.run_delay[rows])
        if view.spins:
            # Threads that spin for want of a core hold all ranks up as well, as often as chance has it.
            paused = _beyond(own - np.nan_to_num(view.usage.cpu[rows]) - delay)
        hit = paused > bound
        if np.count_nonzero(hit) < bounds.SEVERAL:
            return
        # A slow step for another reason hides the rhythm of much longer ones: those alone are looked at. They are
        # chosen by their length, which says nothing about when chance puts them.
        alike = hit & (paused >= bounds.MOST * np.sort(paused)[-bounds.SEVERAL])
        every = _rhythm(at, paused, alike)
        if every is not None:
            hit, when, until = alike, "", None
            how = f"about every {every:.0f} steps, {np.count_nonzero(hit)} times"
            if not _worth(float(paused[hit].sum()), total):
                # Only in a part of the run: from the first to the last, and as long again as between two.
                first, last = np.flatnonzero(hit)[[0, -1]]
                total = float(took[first : last + round(every)].sum())
                if chance(at[hit]) > bounds.CHANCE:
                    return
                until = None if last + 2 * every >= len(rows) else int(at[last])
                when = f"from step {at[first]} on" if until is None else f"in steps {at[first]} to {until}"
                there = " there"
            facts = {"every_steps": every, "until_step": until}
            where = view.lines.more_in(at[hit], at[~hit])
        elif view.spins or view.slower is not None:
            return
        else:
            # Other programs have no line of the script, and make ranks wait for a core.
            itself = _beyond(own - delay)
            hit, when = itself > bound, "now and then"
            how = f"in {np.count_nonzero(hit)} of {len(rows)} steps, in no rhythm"
            where = _line(view, rows, hit, itself, own - delay)
            if where is None or np.count_nonzero(hit) < bounds.SEVERAL:
                return
        lost = float(paused[hit].sum())
        if not _worth(lost, total) or _are_evaluations(view, lost):
            return
    training = view.judged.ranks
    who = "all ranks pause together" if len(training) > 1 else f"{ranks(training)} pauses"
    found = Finding(
        kind="pause",
        severity="warning",
        message=f"{who}{f' {when}' if when else ''}: {milliseconds(median(paused[hit]))} {how}; "
        f"{percent(lost / total)} of the time{there} is lost to it.",
        confidence="high" if of_epochs and np.count_nonzero(hit) > 1 else "medium",
        since_step=int(at[hit][0]),
        cost_ms=lost / len(rows),
        evidence={
            "pause_ms": median(paused[hit]),
            "times": int(np.count_nonzero(hit)),
            "share": lost / total,
            **facts,
        },
        change_mind="What the ranks do then is wanted as often, or their inputs are longer.",
        advice=advice,
    )
    yield with_line(found, where, "the pauses", f". {cure}")


def _beyond(own: Float64) -> Float64:
    """By how much all ranks need longer than is usual for each, in each step."""
    return np.asarray((own - column_medians(own)).min(axis=1))


def _line(view: RunView, rows: Int64, hit: Bool, itself: Float64, own: Float64) -> Where | None:
    """At which line all ranks are for longer in these steps than others take them.

    Args:
        itself: by how much all ranks need longer in each.
        own: what each rank needed without its waits for a core. With more to compute come more of these.
    """
    at, rest = view.judged.step[rows[hit]], view.judged.step[rows[~hit]]
    # With larger inputs they would take longer at every line. Where nobody knows what they computed, all may be that.
    computed = share(view.usage.cpu[rows][hit].min(axis=1), itself[hit])
    longer = stretch(float(np.median(own[~hit])), median(itself[hit]), 1.0 if computed is None else computed)
    where = view.lines.more_in(at, rest)
    # What calls something that no usual step does needs no such proof.
    return view.lines.more_in(at, rest, times=longer) if where is not None and not where.cure else where


LESS_GARBAGE: Final = (
    "Call gc.freeze() before the loop. If pauses remain, gc.disable(), and gc.collect() at a time when all ranks do "
    "that."
)


def _collector(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    known = ~(np.isnan(view.usage.collector) | np.isnan(steps.wall)).any(axis=1)
    if not steps.can_judge or np.count_nonzero(known) < bounds.LEAST_STEPS:
        return
    # The mean, and not the median: most steps have no long pause, and one in many a very long one.
    each = view.usage.collector[known].mean(axis=0)
    wall = float(steps.wall[known].mean())
    threshold = bounds.least_ms(wall)
    caught = [rank for rank, ms in zip(steps.ranks, each.tolist(), strict=True) if ms > threshold]
    if not caught or not wall > 0.0:
        return
    worst = float(each.max())
    found = Finding(
        kind="collector_pauses",
        severity="warning",
        message=f"Python's garbage collector takes {percent(worst / wall)} of the time on {ranks(caught)}: "
        f"{milliseconds(worst)} of a step of {milliseconds(wall)} on average.",
        confidence=bounds.confidence(steps.steps),
        rank=culprit(caught),
        cost_ms=worst,
        evidence={"collector_ms": worst, "step_ms": wall, "ranks": len(caught), "steps": steps.steps},
        change_mind="The step takes as long after gc.disable().",
        advice=LESS_GARBAGE,
    )
    where = _collects_at(view, caught)
    if where is not None:
        found = with_line(found, where, "that")
        found = replace(
            found,
            advice=f"{LESS_GARBAGE} If {where.line} calls gc.collect(): leave it out, or call it once in many steps.",
        )
    yield found


def _collects_at(view: RunView, caught: Sequence[int]) -> Where | None:
    """The line at which it mostly collects. It lets nobody look meanwhile: looks see the recorder note its end."""
    pairs = []
    for lines in (view.lines.by_rank[rank] for rank in caught if rank in view.lines.by_rank):
        there = np.array([stack.call == COLLECTED for stack in lines.stacks], np.bool_)
        pairs.append((lines, there[lines.stack] & (lines.step >= 0)))
    found = where_of(pairs)
    return None if found is None or found.share < bounds.NEARLY_ALL else replace(found, call="")


CHECKS = tuple(
    Check((kind,), look, per_group=True, rests_on="own times")
    for kind, look in (("pause", _look), ("collector_pauses", _collector))
)
