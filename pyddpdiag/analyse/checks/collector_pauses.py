"""Python's garbage collector takes a good part of the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_STEPS, NEARLY_ALL, confidence, least_ms
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.lines import Where, where_of
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import milliseconds, percent, ranks

ADVICE: Final = (
    "Call gc.freeze() before the loop. If pauses remain, gc.disable(), and gc.collect() at a time when all ranks do "
    "that."
)

COLLECTED: Final = "pyddpdiag.record.collector.CollectorWatch._note"


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
    found = Finding(
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
    where = _where(view, caught)
    if where is not None:
        found = with_line(found, where, "that")
        found = replace(
            found,
            advice=f"{ADVICE} If {where.line} calls gc.collect(): leave it out, or call it once in many steps.",
        )
    yield found


def _where(view: RunView, caught: Sequence[int]) -> Where | None:
    """The line at which it mostly collects. It lets nobody look meanwhile: looks see the recorder note its end."""
    pairs = []
    for lines in (view.lines.by_rank[rank] for rank in caught if rank in view.lines.by_rank):
        there = np.array([stack.call == COLLECTED for stack in lines.stacks], np.bool_)
        pairs.append((lines, there[lines.stack] & (lines.step >= 0)))
    found = where_of(pairs)
    return None if found is None or found.share < NEARLY_ALL else replace(found, call="")


CHECK = Check(("collector_pauses",), _look, per_group=True, rests_on="own times")
