"""An operation failed, and the records say so; or it had begun, and nothing says that it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.checks.rank_lost import lost_ranks
from pyddpdiag.analyse.checks.stuck import transfer_stood
from pyddpdiag.analyse.first_failure import FirstFailure
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell, shell_on
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.kinds import KINDS
from pyddpdiag.model.words import at, count, ranks, verb
from pyddpdiag.output import clean


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
        phases = {phase.name for phase in view.phases if phase.in_flight and phase.rank in named}
        code = f"phase '{clean(min(phases))}'" if phases else f"{verb(named, 'its', 'their')} own code"
        waited = sorted({error.rank for error in view.errors.first if error.rank not in named})
        said = (
            f"{ranks(named)} {verb(named, 'was', 'were')} in {code} for {own_ms / 1e3:.0f} s"
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
        advice="Make it shorter, let the other ranks wait for it in a group with a longer timeout, or give "
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


CHECKS = (
    Check(("operation_failed",), _look, rests_on="records"),
    Check(("operations_in_flight",), _in_flight, rests_on="waits"),
)
