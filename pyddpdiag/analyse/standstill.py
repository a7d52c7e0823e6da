"""Whether a live run stands still, and for which rank it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyddpdiag.analyse.bounds import MANY_STEPS, STILL_MS, UNKNOWN_STEP_MS
from pyddpdiag.analyse.progress import Awaited

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView


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


def quiet_ms(view: RunView) -> float | None:
    """For how long no rank that may still run has recorded anything; None if there is none, or one is not known."""
    ranks = zip(view.ranks, view.now.ranks, strict=True)
    silent = [seen.silent_ms for rank, seen in ranks if not rank.closed and seen.alive is not False]
    known = [value for value in silent if value is not None]
    return min(known) if known and len(known) == len(silent) else None


def standstill(view: RunView, least_ms: float = STILL_MS) -> Standstill | None:
    """The standstill of a run; None if the run goes on, is over, or cannot be seen. A shorter silence is none."""
    silent = quiet_ms(view) if view.now.is_live else None
    if silent is None or silent < threshold_ms(view.judged.wall_ms, least_ms):
        return None
    return Standstill(silent, max(view.awaited, key=lambda one: len(one.waiting), default=None))
