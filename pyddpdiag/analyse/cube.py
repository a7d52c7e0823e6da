"""The ranks' steps side by side, each millisecond of them filed under one part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyddpdiag.analyse.distinct import in_any
from pyddpdiag.analyse.life import RankLife
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.model.cube import PARTS, Cube


def cube(ranks: Sequence[int], lives: Sequence[RankLife]) -> Cube:
    """What the ranks' steps consist of; `lives` are theirs, in the same order."""
    steps = in_any([life.step for life in lives]) if lives else np.empty(0, np.int64)
    names = ("exposed", *(part for part in PARTS if part not in ("late", "communication")))
    # In single precision, which is exact to a nanosecond or so: a run may have millions of steps.
    ms = {
        name: side_by_side([(life.step, 1e3 * life.columns[name]) for life in lives], steps).astype(
            np.float32
        )
        for name in names
    }
    exposed = ms.pop("exposed")
    # Where a rank's step is not known, that rank may have waited less.
    least = exposed.min(axis=1, keepdims=True) if exposed.size else exposed
    late = np.where(np.isnan(exposed), exposed, np.nan_to_num(exposed - least))
    parts = {**ms, "late": late, "communication": exposed - late}
    return Cube(tuple(ranks), steps, parts, any(life.split for life in lives))


__all__ = ["cube"]
