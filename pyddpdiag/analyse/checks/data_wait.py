"""All ranks wait for their loaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.step_matrix import lower_median, median, step_walls
from pyddpdiag.analyse.thresholds import HEALTHY_SHARE, LEAST_MS, LEAST_STEPS, confidence
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.windows import Span, sustained
from pyddpdiag.model import Finding
from pyddpdiag.model.findings import Confidence
from pyddpdiag.model.words import milliseconds, percent

DATA_SHARE: Final = 0.20


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    waited = lower_median(steps.data_wait)
    known = int(np.count_nonzero(~np.isnan(waited)))
    if known < LEAST_STEPS or not steps.can_judge:
        return
    wall = step_walls(steps)
    share = waited / np.where(steps.wall_ms > 0, steps.wall_ms, np.nan)
    at_least = sure_median(share) if sure_median(waited) >= LEAST_MS else 0.0
    span = None if at_least >= DATA_SHARE else _part_of_the_run(waited, wall)
    if not (span or at_least >= HEALTHY_SHARE):
        return
    sure: Confidence = "medium" if span else confidence(steps.steps) if at_least >= DATA_SHARE else "low"
    rows = span.rows if span else slice(None)
    typical, step_ms = median(waited[rows]), median(wall[rows]) if span else steps.wall_ms
    share_there = (
        median(waited[rows] / np.where(wall[rows] > 0, wall[rows], np.nan)) if span else median(share)
    )
    since, until = span.between(steps.step) if span else (int(steps.step[0]), None)
    yield Finding(
        kind="data_wait",
        severity="warning",
        message=f"The ranks wait for data{' ' + span.words(steps.step) if span else ''}: {milliseconds(typical)} of "
        f"{milliseconds(step_ms)} per step ({percent(share_there)}) pass before the loader delivers a batch.",
        confidence=sure,
        since_step=since,
        cost_ms=float(np.nansum(waited[rows])) / known if span else typical,
        evidence={
            "data_wait_ms": typical,
            "step_ms": step_ms,
            "share": share_there,
            "until_step": until,
        },
        change_mind="The steps contain a pause on purpose (evaluation, checkpoints) before the next batch.",
        advice="Give the loader more workers (num_workers), prefetching, or a larger batch.",
    )


def _part_of_the_run(waited: Float64, wall: Float64) -> Span | None:
    return sustained(waited - np.maximum(LEAST_MS, DATA_SHARE * wall))


CHECK = Check({"data_wait": ("warning",)}, _look, per_group=True, rests_on="own times", family="ranks")
