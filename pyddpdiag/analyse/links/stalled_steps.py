"""What the stalls of links cost: how much longer the steps at these times took than others."""

from __future__ import annotations

import numpy as np

from pyddpdiag.analyse.links.stalls import READING_S, Stalls
from pyddpdiag.analyse.step_matrix import StepMatrix, median, step_walls
from pyddpdiag.analyse.steps import StepEnds


def lost_in(stalls: Stalls, steps: StepMatrix, ends: StepEnds) -> float:
    """Seconds. The readings alone tell less: what is sent again comes late, as its timer doubles each time.

    Args:
        stalls: of the links.
        steps: the judged steps.
        ends: when the steps of the rank `stalls.links[0].rank` ended.
    """
    walls = step_walls(steps) / 1e3
    row_of = {step: row for row, step in enumerate(ends.step.tolist())}
    extra = np.maximum(np.nan_to_num(walls - median(walls)), 0.0)
    lost = 0.0
    for step, wall, more in zip(steps.step.tolist(), walls, extra, strict=True):
        at_ns = int(ends.at_ns[row_of[step]]) if step in row_of else 0
        end = (at_ns - stalls.begin_ns) / 1e9
        if at_ns and any(
            end >= since - READING_S and end - wall <= until + READING_S for since, until in stalls.spans
        ):
            lost += float(more)
    return max(lost, stalls.stalled_s)


__all__ = ["lost_in"]
