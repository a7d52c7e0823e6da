"""A rank's process exists but is kept from running, or gives no sign of life any more while others do."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import BEHIND_MS
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding


def _look(view: RunView) -> Iterator[Finding]:
    pids = {header.rank: header.pid for header in view.headers}
    for rank in view.ranks:
        if rank.process != "stopped" or rank.closed:
            continue
        silent = "" if rank.silent_ms is None else f" for {rank.silent_ms / 1e3:.0f} s"
        yield Finding(
            kind="rank_stopped",
            severity="error",
            message=f"rank {rank.rank} is stopped: its process exists but is suspended, and it has recorded "
            f"nothing{silent}{_seen(view, rank.rank)}.",
            confidence="certain",
            rank=rank.rank,
            since_step=rank.last_step,
            where=view.endings[rank.rank].where or None,
            evidence={
                "silent_ms": rank.silent_ms,
                "last_step": rank.last_step,
                "beat_age_ms": rank.beat_age_ms,
            },
            change_mind="Somebody stopped it on purpose: a debugger, a job scheduler that suspends jobs.",
            advice=f"Let it go on (Linux: kill -CONT {pids[rank.rank]}), and find out who stopped it.",
        )
    yield from _without_heartbeat(view)


def _seen(view: RunView, rank: int) -> str:
    where = view.endings[rank].where
    return f"; it was last seen at {where}" if where else ""


def _without_heartbeat(view: RunView) -> Iterator[Finding]:
    """Ranks out of sight whose heartbeat stopped while that of others goes on."""
    fresh = [rank for rank in view.ranks if rank.process == "running" and rank.beat_age_ms is not None]
    if not fresh:
        return
    freshest = min(rank.beat_age_ms or 0.0 for rank in fresh)
    for rank in view.ranks:
        age = rank.beat_age_ms
        if rank.process != "unknown" or rank.closed or age is None or age < freshest + BEHIND_MS:
            continue
        yield Finding(
            kind="rank_stopped",
            severity="error",
            message=f"rank {rank.rank} is stopped or dead: its last heartbeat is {age / 1e3:.0f} s old, and that of "
            f"other ranks {freshest / 1e3:.0f} s{_seen(view, rank.rank)}.",
            confidence="high",
            rank=rank.rank,
            since_step=rank.last_step,
            where=view.endings[rank.rank].where or None,
            evidence={
                "silent_ms": rank.silent_ms,
                "last_step": rank.last_step,
                "beat_age_ms": age,
                "freshest_beat_age_ms": freshest,
            },
            change_mind="Its machine's wall clock is wrong, or the shared folder delivers its file late.",
            advice=f"Look at its process on its own machine{f' ({rank.host})' if rank.host else ''}: does it exist, "
            "and is it stopped?",
        )


CHECK = Check(("rank_stopped",), _look, rests_on="records")
