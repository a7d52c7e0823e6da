"""Python's garbage collector takes a good part of the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_STEPS, confidence, least_ms
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import milliseconds, percent, ranks

ADVICE: Final = (
    "Call gc.freeze() before the loop. If pauses remain, gc.disable(), and gc.collect() at a time when all ranks do "
    "that."
)


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    known = ~(np.isnan(view.usage.collector) | np.isnan(steps.wall)).any(axis=1)
    if not steps.can_judge or np.count_nonzero(known) < LEAST_STEPS:
        return
    # The mean, and not the median: most steps have no long pause, and one in many a very long one.
    each = view.usage.collector[known].mean(axis=0)
    wall = float(steps.wall[known].mean())
    threshold = least_ms(wall)
    caught = [rank for rank, ms in zip(steps.ranks, each.tolist(), strict=True) if ms > threshold]
    if not caught or not wall > 0.0:
        return
    worst = float(each.max())
    yield Finding(
        kind="collector_pauses",
        severity="warning",
        message=f"Python's garbage collector takes {percent(worst / wall)} of the time on {ranks(caught)}: "
        f"{milliseconds(worst)} of a step of {milliseconds(wall)} on average.",
        confidence=confidence(steps.steps),
        rank=caught[0] if len(caught) == 1 else None,
        cost_ms=worst,
        evidence={"collector_ms": worst, "step_ms": wall, "ranks": len(caught), "steps": steps.steps},
        change_mind="The step takes as long after gc.disable().",
        advice=ADVICE,
    )


CHECK = Check(("collector_pauses",), _look, per_group=True, rests_on="own times")
