"""An operation failed, and the records say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.checks.rank_lost import lost_ranks
from pyddpdiag.analyse.checks.stuck import transfer_stood
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell, shell_on
from pyddpdiag.model import Finding, OperationError
from pyddpdiag.model.words import count, listed, ranks, verb
from pyddpdiag.output import clean


def _look(view: RunView) -> Iterator[Finding]:
    errors = view.errors.first
    if not errors or view.interruption is not None:
        return
    first = errors[0]
    text = f": {first.text}" if first.text else ""
    end = view.endings[first.rank].end
    line = end.where if end is not None and end.error else view.endings[first.rank].where
    at = f" at {line}" if line else ""
    # Where a rank's records are not here, it may be the cause.
    lost = [rank.rank for rank in lost_ranks(view)] if view.run.is_whole else []
    failure = view.first_failure
    absent = failure.missing if failure is not None and view.run.is_whole and not lost else ()
    late = failure.too_late if failure is not None and not lost else ()
    timed_out = explain(first.text).role is Role.WAITED and first.at_ms is not None
    if absent and timed_out and _was_elsewhere(view, absent, first.at_ms or 0.0):
        longest = min(absent, key=lambda rank: view.endings[rank].newest_ms)
        seen = view.endings[longest]
        yield _own_code(view, absent, first, (first.at_ms or 0.0) - seen.newest_ms, seen.where)
        return
    if late and failure is not None and timed_out:
        since = min(failure.begun_ms.values())
        until = max(failure.begun_ms[rank] for rank in late)
        yield _own_code(view, late, first, until - since, view.line_between(late[0], since, until))
        return
    # The rank that reports an error is rarely the one that caused it.
    stood = not lost and failure is not None and transfer_stood(view, failure)
    if stood:
        cause = " because the transfer stood still"
    elif absent:
        cause = (
            f" because {ranks(absent)} never began {'it' if view.errors.total == 1 else 'the first of them'}"
        )
    elif not lost:
        cause = "; which rank caused it is unknown"
    elif len(lost) == 1:
        cause = f" after rank {lost[0]} was lost"
    else:
        cause = f" after ranks {listed(lost)} were lost"
    yield Finding(
        kind="operation_failed",
        severity="error",
        message=f"{count(view.errors.total, 'operation')} failed{cause}; the earliest on rank {first.rank} in step "
        f"{first.step} ({first.kind} {first.what}{at}){text}",
        confidence="high" if lost or absent or stood else "certain",
        rank=(lost or absent)[0] if len(lost or absent) == 1 else None,
        bucket=first.what if first.kind == "bucket" else None,
        since_step=first.step,
        where=line or None,
        evidence={
            "failed": view.errors.total,
            "reached": first.rank,
            "step": first.step,
            "text": first.text,
        },
        change_mind="The failure itself is recorded. A rank that reports an error has often only lost its neighbour.",
        advice=""
        if lost or stood
        else f"{_meaning(first.text, shell_on(view.sidecars[first.rank].platform))}{_where_to_look(view)}",
    )


def _was_elsewhere(view: RunView, absent: Sequence[int], at_ms: float) -> bool:
    """Whether these ranks lived, and waited in nothing, when the others' wait for them timed out."""
    waits = {one.rank for one in view.in_flight.first if not one.abandoned}
    return all(view.endings[rank].outlived(at_ms) and rank not in waits for rank in absent)


def _own_code(
    view: RunView, absent: Sequence[int], first: OperationError, own_ms: float, line: str
) -> Finding:
    """Ranks that were in their own code for longer than the others' timeout, at this line."""
    phases = {phase.name for phase in view.phases if phase.in_flight and phase.rank in absent}
    code = f"phase '{clean(min(phases))}'" if phases else f"{verb(absent, 'its', 'their')} own code"
    where = f", at {line}," if line else ""
    waited = sorted({error.rank for error in view.errors.first if error.rank not in absent})
    return Finding(
        kind="operation_failed",
        severity="error",
        message=f"{ranks(absent)} {verb(absent, 'was', 'were')} in {code} for {own_ms / 1e3:.0f} s{where} while "
        f"{ranks(waited)} waited in {first.kind} {first.what} of step {first.step} until "
        f"{verb(waited, 'its', 'their')} timeout.",
        confidence="high",
        rank=absent[0] if len(absent) == 1 else None,
        bucket=first.what if first.kind == "bucket" else None,
        since_step=first.step,
        evidence={
            "failed": view.errors.total,
            "reached": first.rank,
            "step": first.step,
            "text": first.text,
            "own_code_ms": own_ms,
            "line": line or None,
        },
        where=line or None,
        change_mind="Its trace lost the record of that operation.",
        advice="Make it shorter, let the other ranks wait for it in a group with a longer timeout, or give "
        "init_process_group a timeout that is longer than it.",
    )


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


CHECK = Check(("operation_failed",), _look, rests_on="records")
