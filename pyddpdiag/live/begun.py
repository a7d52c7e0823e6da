"""The answer of `hang` for a run that has no trace yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyddpdiag.analyse.standstill import judge_starts
from pyddpdiag.live.state import Hang, Operation, RankState, State
from pyddpdiag.model.start import Start


def judge_begun(folder: Path, starts: Sequence[Start], looked_s: float) -> Hang:
    """Where its ranks are, and for whom they wait."""
    line, findings = judge_starts(starts)
    asked = [start.rank for start in starts if start.process in ("running", "stopped")]
    own = [start.rank for start in starts if not start.waits_in and start.rank in asked]
    return Hang(
        folder=str(folder),
        run_id="",
        world_size=max(start.world_size for start in starts),
        status="found" if findings else "cannot_tell",
        line=line,
        findings=findings,
        ranks=tuple(map(begun_state, starts)),
        suspects=tuple(own or asked),
        looked_s=looked_s,
    )


def begun_state(start: Start) -> RankState:
    """A rank that has no trace."""
    return RankState(
        start.rank,
        _state(start),
        start.host,
        start.pid,
        silent_s=None,
        waits_in=Operation("call", start.waits_in, open_s=start.for_s) if start.waits_in else None,
        error=start.error or None,
        line=start.where,
    )


def _state(start: Start) -> State:
    if start.process in ("dead", "stopped"):
        return "dead" if start.process == "dead" else "stopped"
    if start.process == "unknown":
        return "unseen"
    return "waiting" if start.waits_in else "busy"
