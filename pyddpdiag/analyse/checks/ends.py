"""Somebody ended the run from outside, a machine was lost, or a rank's process is kept from running."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from pyddpdiag.analyse.bounds import BEHIND_MS, LOST_S
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.endings import who_sends
from pyddpdiag.analyse.nodes import Node
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.exit_codes import shown
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.node import BEAT_S
from pyddpdiag.model.words import milliseconds, ranks, seconds, verb


def _from_outside(view: RunView) -> Iterator[Finding]:
    one = view.interruption
    if one is None:
        return
    where = f" in step {one.step}" if one.step is not None else ""
    failed = {error.rank for error in view.errors.first} - set(one.ranks)
    if one.ranks:
        ahead = f", {milliseconds(one.ahead_ms)} before the others" if one.ahead_ms else ""
        after = f"; {ranks(sorted(failed))} then failed" if failed else ""
        said = (
            f"{ranks(one.ranks)} {verb(one.ranks, 'was', 'were')} ended by {one.signal}{where}{ahead}{after}."
        )
    else:
        how = "Ctrl-C" if one.signal == "SIGINT" else one.signal
        if one.command is not None:
            code = shown(one.command)
            how = f"its command had ended with exit code {code} and left its ranks, which pyddpdiag run ended"
        said = f"interrupted{where} ({how})."
    yield Finding(
        kind="interrupted",
        severity="error" if one.ranks else "note",
        message=said,
        confidence="high",
        rank=culprit(one.ranks),
        since_step=one.step,
        evidence={
            "signal": one.signal,
            "step": one.step,
            **({"ahead_ms": one.ahead_ms, "others_failed": len(failed)} if one.ranks else {}),
        },
        change_mind="A rank failed at the same moment and left no record of it.",
        advice="Look at the command's own output, and at the system's log of killed processes. A script that starts "
        "ranks in the background must wait for them."
        if one.command is not None and not one.ranks
        else who_sends(one.signal) * (one.signal != "SIGINT" or bool(one.ranks)),
    )


def _machines(view: RunView) -> Iterator[Finding]:
    for node in view.nodes:
        if not _is_lost(view, node):
            continue
        own, host = [rank for rank in view.ranks if rank.rank in node.ranks], node.note.host
        last = max((rank.last_step for rank in own if rank.last_step is not None), default=None)
        over = all(other.ended for other in view.nodes if other is not node)
        yield Finding(
            kind="node_lost",
            severity="error",
            message=f"{host or 'a machine'}, on which {ranks(node.ranks)} ran, was lost: its pyddpdiag run was last "
            f"heard of at {_clock_time(node)}, {seconds(node.behind_s)} before the others, and did not note an end.",
            confidence="high" if over else "medium",
            rank=culprit(node.ranks),
            since_step=last,
            evidence={
                "host": host,
                "ranks": len(node.ranks),
                "behind_s": round(node.behind_s, 3),
                "others_ended": over,
                "last_step": last,
            },
            change_mind="Somebody killed pyddpdiag run together with its ranks, its folder could not be written any "
            "more, or was copied before the others'.",
            advice=f"Look at {host or 'that machine'}: whether it is up, whether the network reaches it, and what its "
            "system's log and the scheduler say of that time.",
        )


def _is_lost(view: RunView, node: Node) -> bool:
    """Whether it fell silent in the middle, while others went on to say something."""
    others = [other for other in view.nodes if other is not node]
    if node.ended or not node.ranks or not others:
        return False
    own = [rank for rank in view.ranks if rank.rank in node.ranks]
    if any(rank.closed or rank.ended for rank in own):
        return False
    # Nobody goes on for long without these ranks: where others did, this folder was only copied before.
    steps = [rank.last_step for rank in view.ranks if rank.last_step is not None]
    here = [rank.last_step for rank in own if rank.last_step is not None]
    if steps and here and max(steps) > max(here) + 1:
        return False
    if node.behind_s > LOST_S:
        return True
    # The others ended of it, perhaps at once. A machine that is only late with its last word has time for that, and one
    # that runs has noted something since.
    over = all(other.ended for other in others)
    return over and node.behind_s > 2 * BEAT_S and node.age_s > LOST_S


def _clock_time(node: Node) -> str:
    return datetime.fromtimestamp(node.note.at_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _stopped(view: RunView) -> Iterator[Finding]:
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


CHECKS = tuple(
    Check((kind,), look, rests_on="records")
    for kind, look in (("interrupted", _from_outside), ("node_lost", _machines), ("rank_stopped", _stopped))
)
