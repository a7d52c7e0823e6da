"""The account of each rank's life: every second from the start of its process to its end, filed under one part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyddpdiag.analyse.distinct import in_any
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.life import RankLife
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.model.account import PARTS, RankAccount


def account(ranks: Sequence[int], lives: Sequence[RankLife]) -> tuple[RankAccount, ...]:
    """One account per rank; `lives` are theirs, in the same order."""
    return tuple(
        _account(rank, life, waits)
        for rank, life, waits in zip(ranks, lives, _rank_waits(lives), strict=True)
    )


def _rank_waits(lives: Sequence[RankLife]) -> list[Float64]:
    """What of each rank's exposed time, by step, is waiting for other ranks: what it has beyond the least of them."""
    steps = in_any([life.step for life in lives]) if lives else np.empty(0, np.int64)
    table = side_by_side([(life.step, life.columns["exposed"]) for life in lives], steps)
    # Where a rank's step is not known, that rank may have waited less.
    least = table.min(axis=1) if table.size else np.empty(0)
    return [
        np.nan_to_num(life.columns["exposed"] - least[np.searchsorted(steps, life.step)]) for life in lives
    ]


def _account(rank: int, life: RankLife, waits: Float64) -> RankAccount:
    """The parts of one rank; what none of them explains is `unknown_s`."""
    parts = dict.fromkeys(PARTS, 0.0) | dict(life.parts)
    for name in ("compute", "blocked", "core_wait", "data_wait", "collectives"):
        parts[f"{name}_s"] = float(life.columns[name].sum())
    parts["rank_wait_s"] = float(waits.sum())
    parts["communication_s"] = float(life.columns["exposed"].sum()) - parts["rank_wait_s"]
    parts["unknown_s"] += max(0.0, life.wall_s - sum(parts.values()))
    return RankAccount(rank, life.wall_s, **parts, phases=dict(life.phases))


__all__ = ["account"]
