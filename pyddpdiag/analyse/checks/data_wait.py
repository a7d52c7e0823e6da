"""All ranks wait for their loaders."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyddpdiag.analyse.bounds import (
    HEALTHY_SHARE,
    LARGE_SHARE,
    LEAST_MS,
    LEAST_STEPS,
    MANY_STEPS,
    MOST,
    NEARLY_ALL,
    SEVERAL,
    SHARED_TIMES,
)
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.core_waits import saved_ms
from pyddpdiag.analyse.exposure import Exposure, exposure_of
from pyddpdiag.analyse.filing import DATA
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import lower_median, median, step_walls
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import of_part
from pyddpdiag.analyse.windows import Stretches, all_of
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import milliseconds, percent


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    wall = step_walls(steps)
    held_up = exposure_of(lower_median(steps.data_wait), wall, steps.wall_ms, can_judge=steps.can_judge)
    if held_up.typical.steps < LEAST_STEPS or not steps.can_judge:
        return
    span = None if held_up.is_large else _part_of_the_run(held_up)
    if not (span or held_up.is_large):
        now_and_then = list(_now_and_then(view, wall))
        if now_and_then:
            yield from now_and_then
            return
    if not (span or held_up.is_typical):
        return
    part = span or all_of(len(steps.step))
    there = held_up.within(part)
    lost_ms = float(np.nansum(there.least))
    since, until = part.between(steps.step)
    found = Finding(
        kind="data_wait",
        severity="warning",
        message=f"The ranks wait for data{part.words(steps.step)}: "
        f"{milliseconds(there.typical_ms)} of {milliseconds(there.median_step_ms)} per step "
        f"({percent(there.typical.value)}) pass before the loader delivers a batch.",
        confidence="medium" if span else held_up.confidence,
        since_step=since,
        until_step=until,
        cost_ms=lost_ms / held_up.typical.steps if span else there.typical_ms,
        cost_s=lost_ms / 1e3,
        evidence={
            "data_wait_ms": there.typical_ms,
            "step_ms": there.median_step_ms,
            "share": there.typical.value,
            "until_step": until,
            **of_part(view, part, steps.step, held_up.least, "data_wait"),
        },
        change_mind="The steps contain a pause on purpose (evaluation, checkpoints) before the next batch.",
        advice=f"Give the loader more workers ({view.advice.workers('...')}), prefetching, or a larger batch.",
    )
    yield with_line(found, view.lines.most_of(steps.step[part.rows], DATA), "the wait")


def _part_of_the_run(held_up: Exposure) -> Stretches | None:
    """The parts in which they wait, and elsewhere much less."""
    span = held_up.span
    if span is None:
        return None
    rest = np.delete(held_up.least, span.rows)
    alike = median(held_up.least[span.rows]) < SHARED_TIMES * median(rest)
    return None if len(rest) >= LEAST_STEPS and alike else span


def _now_and_then(view: RunView, wall: Float64) -> Iterator[Finding]:
    """Some batches come late, now on this rank and now on that: no median shows it, and all wait for each of them."""
    steps = view.judged
    rows = ~np.isnan(steps.own + steps.data_wait).any(axis=1)
    if np.count_nonzero(rows) < MANY_STEPS:
        return
    own, waits = steps.own[rows], steps.data_wait[rows]
    lost = saved_ms(own, waits)
    held_up = exposure_of(lost, wall[rows], steps.wall_ms, can_judge=True)
    slow = lost > max(LEAST_MS, MOST * steps.wall_ms)
    # Where every batch takes its time, that is no lateness.
    if not lost[slow].sum() >= MOST * lost.sum() > 0.0:
        return
    # Whom the others wait for: of one rank alone another check tells.
    last = (own - own.min(axis=1)[:, None] + waits)[slow].argmax(axis=1)
    most = np.bincount(last, lost[slow], len(steps.ranks)).max()
    if len(steps.ranks) > 1 and most >= NEARLY_ALL * lost[slow].sum():
        return
    times, typical, share = int(np.count_nonzero(slow)), median(lost[slow]), held_up.sums.value
    few = times >= SEVERAL and share >= LARGE_SHARE
    repeated = held_up.repeated.at_least
    if held_up.mean_ms < LEAST_MS or not (repeated >= HEALTHY_SHARE or few):
        return
    at = steps.step[rows][slow]
    yield Finding(
        kind="data_wait",
        severity="warning",
        message=f"the ranks wait for data now and then: in {times} of {len(lost)} steps a batch comes "
        f"{milliseconds(typical)} late, on one rank or another, and all wait for it; {percent(share)} of the time goes "
        "by that way.",
        confidence="high" if repeated >= LARGE_SHARE else "medium" if repeated >= HEALTHY_SHARE else "low",
        since_step=int(at[0]),
        cost_ms=held_up.mean_ms,
        cost_s=float(lost.sum()) / 1e3,
        evidence={
            "data_wait_ms": typical,
            "step_ms": steps.wall_ms,
            "share": share,
            "share_at_least": repeated,
            "times": times,
            "steps": len(lost),
        },
        change_mind="The steps contain a pause on purpose (evaluation, checkpoints) before the next batch.",
        advice="Let the loader work further ahead (num_workers, prefetch_factor), so that a slow batch finds others "
        "ready; and look for what makes some samples slow: large files, a cold disk, a remote store.",
    )


CHECK = Check(("data_wait",), _look, per_group=True, rests_on="own times")
