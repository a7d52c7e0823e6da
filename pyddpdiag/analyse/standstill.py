"""Whether a live run stands still, and for which rank it waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyddpdiag.analyse.bounds import MANY_STEPS, STILL_MS, UNKNOWN_STEP_MS
from pyddpdiag.analyse.progress import Awaited
from pyddpdiag.model import Now, RankStats


@dataclass(frozen=True)
class Standstill:
    """Nothing was recorded on any rank for `silent_ms`, though some process is alive.

    `awaited` is the operation in which most ranks wait; None if no rank waits: they may evaluate, or write a
    checkpoint.
    """

    silent_ms: float
    awaited: Awaited | None


def threshold_ms(step_ms: float, least_ms: float = STILL_MS) -> float:
    """How long nothing must be recorded for a standstill; `step_ms` is the median step, NaN = not known."""
    return max(least_ms, MANY_STEPS * step_ms) if step_ms == step_ms else UNKNOWN_STEP_MS


def quiet_ms(ranks: Sequence[RankStats], now: Now) -> float | None:
    """For how long no rank that may still run has recorded anything; None if there is none, or one is not known."""
    silent = [
        seen.silent_ms
        for rank, seen in zip(ranks, now.ranks, strict=True)
        if not rank.closed and seen.alive is not False
    ]
    known = [value for value in silent if value is not None]
    return min(known) if known and len(known) == len(silent) else None


def standstill(
    ranks: Sequence[RankStats],
    now: Now,
    awaited: Sequence[Awaited],
    step_ms: float,
    least_ms: float = STILL_MS,
) -> Standstill | None:
    """The standstill of a run; None if the run goes on, is over, or cannot be seen.

    Args:
        ranks: what the traces hold.
        now: how the processes are.
        awaited: what ranks wait in.
        step_ms: the median step; NaN = not known.
        least_ms: a shorter silence is none.
    """
    silent = quiet_ms(ranks, now) if now.is_live else None
    if silent is None or silent < threshold_ms(step_ms, least_ms):
        return None
    return Standstill(silent, max(awaited, key=lambda one: len(one.waiting), default=None))
