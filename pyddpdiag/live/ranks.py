"""Every rank of a run as it is now, and the answer of `hang` for a run that has no trace yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pyddpdiag.analyse.standstill import Awaited
from pyddpdiag.analyse.starts import judge_starts
from pyddpdiag.analyse.view import RunView
from pyddpdiag.live.look import Look
from pyddpdiag.live.state import Hang, Operation, RankState, State
from pyddpdiag.model.rows import OpenOperation, RankStats
from pyddpdiag.model.start import Start


def rank_states(seen: Look, moving: frozenset[int] = frozenset()) -> tuple[RankState, ...]:
    """All ranks of the run, sorted; at most a thousand of those that have no trace.

    `moving`: the ranks that recorded something since an earlier look.
    """
    return tuple(sorted(_states(seen, moving), key=lambda rank: rank.rank))


def _states(seen: Look, moving: frozenset[int]) -> Iterator[RankState]:
    view = seen.view
    oldest = oldest_of(view.in_flight.first)
    missing: dict[int, Awaited] = {}
    for awaited in view.awaited:
        for rank in awaited.missing:
            missing.setdefault(rank, awaited)
    errors = {error.rank: error for error in reversed(view.errors.first)}
    for stats, trace in zip(view.ranks, seen.run.ranks, strict=True):
        rank = stats.rank
        open_one, error = oldest.get(rank), errors.get(rank)
        yield RankState(
            rank=rank,
            state=_state(stats, rank in moving, open_one is not None),
            host=stats.host,
            pid=trace.header.pid,
            last_step=stats.last_step,
            silent_s=None if stats.silent_ms is None else stats.silent_ms / 1e3,
            beat_s=seen.beat_s.get(rank),
            waits_in=None if open_one is None or stats.closed else _open(view, open_one),
            missing_from=_missed(view, missing[rank]) if rank in missing else None,
            error=None if error is None else error.text,
            error_at_ms=None if error is None else error.at_ms,
            line="" if stats.closed else view.endings[rank].where,
        )
    begun = {start.rank: begun_state(start) for start in seen.run.starts}
    for rank in seen.run.missing:
        yield begun.get(rank) or RankState(rank, "absent")


def oldest_of(operations: Iterable[OpenOperation]) -> dict[int, OpenOperation]:
    """By rank, the operation that is in flight for longest; those that were abandoned are no longer."""
    by_age = sorted(operations, key=lambda one: one.open_ms)
    return {one.rank: one for one in by_age if not one.abandoned}


def _state(stats: RankStats, moves: bool, waits: bool) -> State:
    if stats.ended_well and not waits:
        return "closed"
    if stats.process == "dead":
        return "dead"
    if stats.process == "stopped":
        return "stopped"
    if moves:
        return "moving"
    if stats.process == "unknown":
        return "unseen"
    return "waiting" if waits else "busy"


def _open(view: RunView, operation: OpenOperation) -> Operation:
    return Operation(
        operation.kind,
        operation.what,
        _parameters(view, operation.kind, operation.what),
        operation.bytes or None,
        # Records of other collectives need not know their step.
        operation.step if operation.kind == "bucket" else None,
        operation.open_ms / 1e3,
        operation.shared,
    )


def _missed(view: RunView, awaited: Awaited) -> Operation:
    same = (one for one in view.in_flight.first if one.rank in awaited.waiting and one.what == awaited.what)
    size = next((one.bytes for one in same), 0)
    names = _parameters(view, awaited.kind, awaited.what)
    return Operation(awaited.kind, awaited.what, names, size or None, awaited.step)


def _parameters(view: RunView, kind: str, what: str) -> tuple[str, ...]:
    return view.names.parameters(int(what, 16)) if kind == "bucket" else ()


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
        _begun_state(start),
        start.host,
        start.pid,
        silent_s=None,
        waits_in=Operation("call", start.waits_in, open_s=start.for_s) if start.waits_in else None,
        error=start.error or None,
        line=start.where,
    )


def _begun_state(start: Start) -> State:
    if start.process in ("dead", "stopped"):
        return "dead" if start.process == "dead" else "stopped"
    if start.process == "unknown":
        return "unseen"
    return "waiting" if start.waits_in else "busy"
