"""The ranks' steps side by side, each millisecond of them filed under one part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyddpdiag.analyse.distinct import in_any
from pyddpdiag.analyse.grouped import Float32
from pyddpdiag.analyse.life import RankLife
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.model.cube import BEFORE, PARTS, SPANS, Cube, RankParts
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.rows import Int64


def cube(ranks: Sequence[int], lives: Sequence[RankLife]) -> Cube:
    """What the ranks' steps consist of; `lives` are theirs, in the same order."""
    steps = in_any([life.step for life in lives]) if lives else np.empty(0, np.int64)
    names = ("exposed", *SPANS, *(part for part in PARTS if part not in ("late", "communication")))
    ms = _columns(names, lives, steps)
    exposed = ms.pop("exposed")
    spans = {name: ms.pop(name) for name in SPANS}
    # Where a rank's step is not known, that rank may have waited less.
    least = exposed.min(axis=1, keepdims=True) if exposed.size else exposed
    late = np.where(np.isnan(exposed), exposed, np.nan_to_num(exposed - least))
    parts = {**ms, "late": late, "communication": exposed - late}
    return Cube(tuple(ranks), steps, parts, any(life.split for life in lives), spans)


def before_steps(of: Cube, lives: Sequence[RankLife]) -> dict[str, Float32]:
    """`BEFORE` the steps of a cube: [steps, ranks] in ms."""
    return _columns(BEFORE, lives, of.step)


def _columns(names: Sequence[str], lives: Sequence[RankLife], steps: Int64) -> dict[str, Float32]:
    # In single precision, which is exact to a nanosecond or so: a run may have millions of steps.
    return {
        name: side_by_side([(life.step, life.columns[name] * 1e3) for life in lives], steps).astype(
            np.float32
        )
        for name in names
    }


def rank_parts(steps: StepTable, of: Cube) -> tuple[RankParts, ...]:
    """The mean of the judged steps of each rank that has some."""
    chosen = np.isin(of.step, steps.step[steps.judged])
    found = []
    for place, rank in enumerate(of.ranks):
        rows = {name: values[chosen, place].astype(np.float64) for name, values in of.ms.items()}
        known = np.isfinite(sum(rows.values(), np.zeros(1)))
        if not known.any():
            continue
        mean = {name: float(values[known].mean()) for name, values in rows.items()}
        own = sum(rows[name] for name in ("compute", "core", "blocked"))
        spans = {name: values[chosen, place].astype(np.float64) for name, values in of.spans.items()}
        seen = known & np.isfinite(sum(spans.values(), np.zeros(1)))
        whole = float(own[seen].sum())
        if whole > 0:
            # Steps of which only sums are left know no spans: they are taken to be as the others.
            scale = float(own[known].mean()) / whole
            mean |= {name: float(values[seen].sum()) * scale for name, values in spans.items()}
            mean["before"] = max(0.0, whole * scale - sum(mean[name] for name in SPANS))
        total = sum(mean[name] for name in PARTS)
        found.append(RankParts(rank, total, **{f"{name}_ms": value for name, value in mean.items()}))
    return tuple(found)
