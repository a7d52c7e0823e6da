"""What a run lost, and where, for which no cause is found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, LARGE_SHARE, LONG, MOST, NEAR
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import are_long, exposed_ms, median, other_ms
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.words import count, percent, seconds
from pyddpdiag.output import clean
from pyddpdiag.trace.rows import Int64


@dataclass(frozen=True)
class Lost:
    """The share of the time that went by in steps much longer than the others, and a sentence about it.

    `incidents`: how many such steps there are; those right at the begin are one. `named`: the program says by a phase
    what it did there.
    """

    share: float
    incidents: int
    named: bool
    said: str

    @property
    def is_much(self) -> bool:
        """Whether the run cannot be called healthy, whatever a typical step is like."""
        return not self.named and self.incidents > 1 and self.share >= LARGE_SHARE


def what_was_lost(view: RunView) -> Lost | None:
    """The time of the steps that are much longer than the others; None where it is little."""
    steps = view.judged
    spans = np.fmax.reduce(view.step_spans, axis=1) if steps.wall.size else np.empty(0)
    usual = median(spans)
    rows = np.flatnonzero(are_long(spans))
    total, lost = float(np.nansum(spans)), float((spans[rows] - usual).sum())
    if not len(rows) or lost < HEALTHY_SHARE * total:
        return None
    at = steps.step[rows]
    first = "step" if len(at) == 1 else "the first is step"
    # Of the rows from 0 on, as many as follow each other.
    warm_up = min(NEAR, int(np.count_nonzero(rows == np.arange(len(rows)))))
    phase = _phase(view, rows, lost)
    return Lost(
        lost / total,
        len(rows) - max(0, warm_up - 1),
        bool(phase),
        f"{percent(lost / total)} of the time ({seconds(lost / 1e3)}) went by in {count(len(at), 'step')} that took "
        f"more than {LONG:g} times as long as usual ({first} {at[0]}), {phase or _where(view, rows, lost)}.",
    )


def _phase(view: RunView, rows: Int64, lost: float) -> str:
    """The phase in which most of it went by, one that other steps do not have; empty: there is none."""
    rare: dict[str, float] = {}
    for name, spent in view.phase_times.items():
        # The others wait for the rank that is in it longest.
        took = spent.max(axis=1)
        if not median(took) > 0:
            rare[name] = float(took[rows].sum())
    name = max(rare, key=lambda each: rare[each], default="")
    if sum(rare.values()) < MOST * lost:
        return ""
    return f"in phase '{clean(name)}'" + (" and others" if rare[name] < MOST * lost else "")


def _where(view: RunView, rows: Int64, lost: float) -> str:
    """What the ranks did in those steps."""
    steps = view.judged
    own = np.nan_to_num(steps.own - _usual(steps.own))[rows]
    least, most = float(own.min(axis=1).sum()), float(own.max(axis=1).sum())
    if least >= MOST * lost:
        where = view.lines.more_in(steps.step[rows], np.delete(steps.step, rows))
        return "in which all ranks were busy in their own code" + (f", mostly at {where}" if where else "")
    if most - least >= MOST * lost:
        rank = steps.ranks[int(own.sum(axis=0).argmax())]
        return f"in which the others waited for one, most often for rank {rank}"
    if float(np.nansum(exposed_ms(steps)[rows])) >= MOST * lost:
        return "in which every rank waited for buckets and nothing moved between the ranks"
    if float(np.nansum(other_ms(steps)[rows])) >= MOST * lost:
        return "in which every rank waited in other collectives"
    return "and no part of the step has most of it"


def _usual(own: Float64) -> Float64:
    known = ~np.isnan(own).any(axis=1)
    return np.median(own[known], axis=0) if known.any() else np.zeros(own.shape[1])
