"""The account of each rank's life: every second from the start of its process to its end, filed under one part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.life import RankLife
from pyddpdiag.model.account import PARTS, RankAccount
from pyddpdiag.model.cube import Cube

OF_CUBE: Final = {
    "data_wait": "data_wait_s",
    "compute": "compute_s",
    "phase": "phases_s",
    "core": "core_wait_s",
    "blocked": "blocked_s",
    "other": "collectives_s",
    "late": "rank_wait_s",
    "communication": "communication_s",
}


ROUNDING: Final = 2.0**-20
"""Of what is summed, at most: the cube is in single precision, whose values are off by 2^-24 of themselves."""


def account(ranks: Sequence[int], lives: Sequence[RankLife], steps: Cube) -> tuple[RankAccount, ...]:
    """One account per rank; `lives` are theirs, in the same order, `steps` those of all."""
    return tuple(
        _account(rank, life, steps, place)
        for place, (rank, life) in enumerate(zip(ranks, lives, strict=True))
    )


def _account(rank: int, life: RankLife, steps: Cube, place: int) -> RankAccount:
    """The parts of one rank; what none of them explains is `unknown_s`."""
    parts = dict.fromkeys(PARTS, 0.0) | dict(life.parts)
    for name, part in OF_CUBE.items():
        parts[part] += float(np.nansum(steps.ms[name][:, place], dtype=np.float64)) / 1e3
    rest = life.wall_s - sum(parts.values())
    if rest > ROUNDING * life.wall_s:
        parts["unknown_s"] += rest
    return RankAccount(rank, life.wall_s, **parts, phases=dict(life.phases))
