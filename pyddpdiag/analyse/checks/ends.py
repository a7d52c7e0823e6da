"""An operation failed or did not end; the run was ended, a machine lost, or a process kept from running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from math import inf

from pyddpdiag.analyse.bounds import BEHIND_MS, LOST_S
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.checks.rank_lost import lost_ranks
from pyddpdiag.analyse.checks.stuck import own_code, transfer_stood
from pyddpdiag.analyse.endings import Node, who_sends
from pyddpdiag.analyse.operations import FirstFailure
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.exit_codes import shown
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell, shell_on
from pyddpdiag.model.findings import Confidence, Finding, culprit
from pyddpdiag.model.kinds import KINDS
from pyddpdiag.model.node import BEAT_S
from pyddpdiag.model.rows import RankStats
from pyddpdiag.model.words import at, count, milliseconds, ranks, seconds, verb


def _look(view: RunView) -> Iterator[Finding]:
    failure = view.first_failure
    if failure is None or view.interruption is not None:
        return
    first, total = view.errors.first[0], view.errors.total
    end = view.endings[first.rank].end
    line = end.where if end is not None and end.error else view.endings[first.rank].where
    # Where a rank's records are not here, it may be the cause.
    whole = view.run.is_whole
    lost = tuple(rank.rank for rank in lost_ranks(view)) if whole else ()
    absent = failure.missing if whole and not lost else ()
    late = None if lost else _in_own_code(view, failure, absent)
    stood = not lost and transfer_stood(view, failure)
    named, evidence = lost or absent, {}
    if late is not None:
        named, own_ms, line = late
        evidence = {"own_code_ms": own_ms, "line": line or None}
        waited = sorted({error.rank for error in view.errors.first if error.rank not in named})
        said = (
            f"{ranks(named)} {verb(named, 'was', 'were')} in {own_code(view, named)} for {own_ms / 1e3:.0f} s"
            f"{f', at {line},' if line else ''} while {ranks(waited)} waited in {first.kind} {first.what} of step "
            f"{first.step} until {verb(waited, 'its', 'their')} timeout."
        )
    else:
        # The rank that reports an error is rarely the one that caused it.
        if stood:
            cause = " because the transfer stood still"
        elif absent:
            cause = f" because {ranks(absent)} never began {'it' if total == 1 else 'the first of them'}"
        elif lost:
            cause = f" after {ranks(lost)} {verb(lost, 'was', 'were')} lost"
        else:
            cause = KINDS["operation_failed"].unless_led
        said = (
            f"{count(total, 'operation')} failed{cause}; the earliest on rank {first.rank} in step {first.step} "
            f"({first.kind} {first.what}{at(line)}){f': {first.text}' if first.text else ''}"
        )
    yield Finding(
        kind="operation_failed",
        severity="error",
        message=said,
        confidence="high" if named or stood else "certain",
        rank=culprit(named),
        bucket=first.what if first.kind == "bucket" else None,
        since_step=first.step,
        where=line or None,
        evidence={"failed": total, "reached": first.rank, "step": first.step, "text": first.text, **evidence},
        change_mind="Its trace lost the record of that operation."
        if late or absent
        else "A rank's own output shows an earlier error that is not recorded.",
        advice=("Does it wait there for what another rank does only later, or never? " if absent else "")
        + "Make it shorter, let the other ranks wait for it in a group with a longer timeout, or give "
        "init_process_group a timeout that is longer than it."
        if late
        else ""
        if lost or stood
        else f"{_meaning(first.text, shell_on(view.sidecars[first.rank].platform))}{_where_to_look(view)}",
    )


def _in_own_code(
    view: RunView, failure: FirstFailure, absent: Sequence[int]
) -> tuple[tuple[int, ...], float, str] | None:
    """The ranks that were in their own code for longer than the others' timeout, for how long, and the line."""
    at_ms, late = failure.at_ms, failure.too_late
    if at_ms == inf or explain(failure.error.text).role is not Role.WAITED:
        return None
    waits = {one.rank for one in view.in_flight.first if not one.abandoned}
    # They lived, and waited in nothing, when the others' wait for them timed out.
    ends = [view.endings[rank] for rank in absent]
    # A newer record is of an operation of theirs: they were in that, and waited as well.
    if ends and all(one.outlived(at_ms) and one.rank not in waits and one.newest_ms < at_ms for one in ends):
        longest = min(ends, key=lambda one: one.newest_ms)
        return tuple(absent), at_ms - longest.newest_ms, longest.where
    if late:
        since, until = min(failure.begun_ms.values()), max(failure.begun_ms[rank] for rank in late)
        return late, until - since, view.line_between(late[0], since, until)
    return None


def _meaning(text: str, shell: Shell) -> str:
    """What the catalog knows of an error that says why; most say only that another rank is gone or late."""
    found = explain(text, lines_for=shell)
    return f"{found.cause} {found.fix} " if found.known and found.role is Role.CAUSE else ""


def _where_to_look(view: RunView) -> str:
    """No rank is known to be lost, but one without an error may have exited by itself."""
    if not view.run.is_whole:
        hidden = sorted({*view.run.missing, *view.run.damaged})
        return f"Look first at the output of {ranks(hidden)}, whose trace is missing or damaged."
    blamed = {error.rank for error in view.errors.first}
    quiet = [rank.rank for rank in view.ranks if rank.rank not in blamed]
    if not quiet:
        return "Every rank here reports an error: look at the output of each for the earliest, or one of its own."
    quiet_ranks = f"{ranks(quiet)}, which {verb(quiet, 'reports', 'report')} no error"
    return f"Look first at {quiet_ranks}, and at {verb(quiet, 'its', 'their')} own output."


def _in_flight(view: RunView) -> Iterator[Finding]:
    """Operations that had begun and not ended; in a live run there are some at any moment."""
    operations = view.in_flight.first
    if not operations or view.interruption is not None:
        return
    still = {rank.rank for rank in view.ranks if not rank.closed}
    waiting = sorted({operation.rank for operation in operations})
    longest = max(operations, key=lambda operation: operation.open_ms)
    running = any(operation.rank in still for operation in operations)
    yield Finding(
        kind="operations_in_flight",
        severity="note" if running else "warning",
        message=f"{count(view.in_flight.total, 'operation')} had begun and not ended on {ranks(waiting)}; the "
        f"longest, {longest.kind} {longest.what} of step {longest.step}{longest.lasted}.",
        confidence="certain",
        rank=culprit(waiting),
        bucket=longest.what if longest.kind == "bucket" else None,
        since_step=longest.step,
        evidence={"operations": view.in_flight.total, "open_ms": longest.open_ms},
        change_mind="The run goes on: read it again." if running else "",
        advice="",
    )


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
        when = datetime.fromtimestamp(node.note.at_s, timezone.utc)
        yield Finding(
            kind="node_lost",
            severity="error",
            message=f"{host or 'a machine'}, on which {ranks(node.ranks)} ran, was lost: its pyddpdiag run was last "
            f"heard of at {when:%Y-%m-%d %H:%M:%S} UTC, {seconds(node.behind_s)} before the others, and did not note "
            "an end.",
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


def _stopped(view: RunView) -> Iterator[Finding]:
    pids = {header.rank: header.pid for header in view.headers}
    for rank in view.ranks:
        if rank.process != "stopped" or rank.closed:
            continue
        silent = "" if rank.silent_ms is None else f" for {rank.silent_ms / 1e3:.0f} s"
        yield _stop(
            view,
            rank,
            f"is stopped: its process exists but is suspended, and it has recorded nothing{silent}",
            confidence="certain",
            evidence={"beat_age_ms": rank.beat_age_ms},
            change_mind="Somebody stopped it on purpose: a debugger, a job scheduler that suspends jobs.",
            advice=f"Let it go on (Linux: kill -CONT {pids[rank.rank]}), and find out who stopped it.",
        )
    yield from _without_heartbeat(view)


def _stop(
    view: RunView,
    rank: RankStats,
    said: str,
    *,
    confidence: Confidence,
    evidence: dict[str, float | int | str | None],
    change_mind: str,
    advice: str,
) -> Finding:
    where = view.endings[rank.rank].where
    seen = f"; it was last seen at {where}" if where else ""
    return Finding(
        kind="rank_stopped",
        severity="error",
        message=f"rank {rank.rank} {said}{seen}.",
        confidence=confidence,
        rank=rank.rank,
        since_step=rank.last_step,
        where=where or None,
        evidence={"silent_ms": rank.silent_ms, "last_step": rank.last_step, **evidence},
        change_mind=change_mind,
        advice=advice,
    )


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
        yield _stop(
            view,
            rank,
            f"is stopped or dead: its last heartbeat is {age / 1e3:.0f} s old, and that of other ranks "
            f"{freshest / 1e3:.0f} s",
            confidence="high",
            evidence={"beat_age_ms": age, "freshest_beat_age_ms": freshest},
            change_mind="Its machine's wall clock is wrong, or the shared folder delivers its file late.",
            advice=f"Look at its process on its own machine{f' ({rank.host})' if rank.host else ''}: does it exist, "
            "and is it stopped?",
        )


CHECKS = (
    Check(("interrupted",), _from_outside, rests_on="records"),
    Check(("node_lost",), _machines, rests_on="records"),
    Check(("rank_stopped",), _stopped, rests_on="records"),
    Check(("operation_failed",), _look, rests_on="records"),
    Check(("operations_in_flight",), _in_flight, rests_on="waits"),
)
