"""From a look at a run to the answer: who holds it up. A pure function; the looking is done before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from pyddpdiag.analyse.bounds import STILL_MS
from pyddpdiag.analyse.catalog import find
from pyddpdiag.analyse.endings import who_sends
from pyddpdiag.analyse.group_view import parts
from pyddpdiag.analyse.standstill import Awaited, quiet_ms, threshold_ms
from pyddpdiag.analyse.weigh.causes import causes_first, leads
from pyddpdiag.analyse.weigh.undecided import waited_in_vain
from pyddpdiag.live.look import Look
from pyddpdiag.live.ranks import rank_states
from pyddpdiag.live.state import Hang, RankState, Status
from pyddpdiag.model import words
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of

GONE_S: Final = 30.0
"""A file on a shared folder may be seen so much later than it was written."""

GONE_HERE_S: Final = 5.0


def judge(seen: Look, moving: frozenset[int], looked_s: float) -> Hang:
    """The answer.

    `moving`: the ranks that recorded something since the first look. `looked_s`: how long the run was looked at.
    """
    if seen.view.standstill is not None:
        moving = frozenset()  # the last records came at the beginning of the look
    ranks = rank_states(seen, moving)
    findings = _findings(seen, ranks) or list(_gone(seen, ranks))
    status, line = _answer(seen, ranks, findings, moving, looked_s)
    if status in ("found", "cannot_tell"):
        line = " ".join(words.closed(words.sentence(part)) for part in (line, *_to_the_end(seen, line)))
    return Hang(
        folder=str(seen.run.folder),
        run_id=seen.run.run_id,
        world_size=seen.run.world_size,
        status=status,
        line=line[:1].upper() + line[1:],
        findings=tuple(findings) if status != "moving" else (),
        ranks=ranks,
        suspects=_suspects(seen, ranks, findings) if status in ("found", "cannot_tell") else (),
        looked_s=looked_s,
        warnings=seen.run.warnings,
    )


def is_settled(seen: Look) -> bool:
    """Whether a second look could add nothing: every recorder is closed, no process is left, or one is known to have
    ended or to be stopped."""
    ranks = seen.view.ranks
    if all(rank.is_over for rank in ranks):
        return True
    if seen.view.standstill is not None:
        return True
    return any(kind_of(one).end == "ended" for one in _findings(seen, rank_states(seen)))


def _findings(seen: Look, ranks: Sequence[RankState]) -> list[Finding]:
    """What the checks of a report say of a run that does not go on and of what led to that, in its order; and what only
    a live look can tell."""
    every = find(seen.view, parts(seen.view))
    # That all ranks ended at one place without a note is no more than what is said without findings.
    ends = [one for one in every if kind_of(one).end and (one.kind, one.severity) != ("rank_lost", "note")]
    found = [one for one in every if one in ends or any(leads(one, end) for end in ends)]
    gone = all(rank.state in ("dead", "closed", "absent") for rank in ranks)
    if any(rank.state == "absent" for rank in ranks) and seen.view.awaited and not gone:
        # An operation that "every rank began" was begun by every rank that is here.
        found = [_absent(seen), *(one for one in found if one.kind != "transport_stalled")]
    found = causes_first([*_without_heartbeat(seen, found), *found])
    still = seen.view.standstill
    if still is not None and still.silent_ms < STILL_MS:
        found = [
            replace(one, confidence="medium")
            if kind_of(one).end == "stuck" and one.confidence != "low"
            else one
            for one in found
        ]
    return found


def _gone(seen: Look, ranks: Sequence[RankState]) -> Iterator[Finding]:
    """Ranks whose processes are gone while others live, who may not have noticed yet."""
    dead = [rank.rank for rank in ranks if rank.state == "dead"]
    living = [rank.rank for rank in ranks if rank.state in ("moving", "waiting", "busy")]
    if not dead or not living:
        return
    steps = (rank.last_step for rank in ranks if rank.rank in dead)
    last = max((step for step in steps if step is not None), default=None)
    gone = words.ranks(dead)
    ends = [seen.view.endings[rank].end for rank in dead]
    signals = {end.signal for end in ends if end is not None and end.interrupted}
    signal = signals.pop() if None not in ends and len(signals) == 1 else ""
    yield Finding(
        kind="rank_lost",
        severity="error",
        message=(
            f"{gone} {words.verb(dead, 'was', 'were')} ended by {signal}, "
            if signal
            else f"the process of {gone} is gone and did not close its trace, "
        )
        + f"while {words.ranks(living)} still {words.verb(living, 'lives', 'live')}.",
        confidence="medium",
        rank=dead[0] if len(dead) == 1 else None,
        since_step=last,
        evidence={"dead": len(dead), "living": len(living), "last_step": last},
        change_mind="Its script ended without recorder.close(): then the others end soon, too.",
        advice=who_sends(signal)
        if signal
        else "Look at this rank's own output, its memory use and the system's log of killed processes.",
    )


def _absent(seen: Look) -> Finding:
    run = seen.run
    waiting = sorted({rank for awaited in seen.view.awaited for rank in awaited.waiting})
    return Finding(
        kind="rank_absent",
        severity="error",
        message=f"{words.ranks(run.missing)} of {run.world_size} {words.verb(run.missing, 'has', 'have')} no trace, "
        f"and {words.ranks(waiting)} {words.verb(waiting, 'waits', 'wait')}: a rank without a trace never came as far "
        "as its recorder, or records elsewhere.",
        confidence="medium",
        rank=run.missing[0] if run.missing_count == 1 else None,
        evidence={"absent": run.missing_count, "waiting": len(waiting)},
        change_mind="Its recorder writes into another folder, or this folder is not shared between the hosts.",
        advice="Look at that rank's own output: did it start, and did it get past init_process_group?",
    )


def _without_heartbeat(seen: Look, found: Sequence[Finding]) -> Iterator[Finding]:
    """Ranks out of sight whose heartbeat has stopped."""
    named = {one.rank for one in found if kind_of(one).end == "ended"}
    for rank, trace in zip(seen.view.ranks, seen.run.ranks, strict=True):
        age = seen.beat_s.get(rank.rank)
        shares_clock = trace.glance is not None
        if rank.closed or rank.process != "unknown" or rank.rank in named or age is None:
            continue
        if age > (GONE_HERE_S if shares_clock else GONE_S):
            yield Finding(
                kind="rank_lost",
                severity="error",
                message=f"rank {rank.rank} on {rank.host or 'another host'} gives no sign of life: its last heartbeat "
                f"is {age:.0f} s old, and it did not close its trace.",
                confidence="high" if shares_clock else "medium",
                rank=rank.rank,
                since_step=rank.last_step,
                evidence={"heartbeat_s": age, "last_step": rank.last_step},
                change_mind="Its process is stopped, its host cannot write into this folder, or the clocks differ.",
                advice=f"Look for process {trace.header.pid} on that host, and run this command there.",
            )


def _answer(
    seen: Look,
    ranks: Sequence[RankState],
    findings: Sequence[Finding],
    moving: frozenset[int],
    looked_s: float,
) -> tuple[Status, str]:
    if any(kind_of(one).end == "ended" for one in findings) or (findings and not moving):
        return "found", findings[0].message
    if moving:
        return "moving", _moving(seen, moving, looked_s)
    if all(rank.state in ("closed", "absent") for rank in ranks):
        missing = seen.run.missing_count
        if missing:
            return (
                "cannot_tell",
                f"cannot tell: every rank that has a trace here ended normally, and {missing} have none.",
            )
        return "ended", "the run is over: every rank ended normally."
    return "cannot_tell", f"cannot tell: {_unsure(seen, ranks)}"


def _to_the_end(seen: Look, line: str) -> Iterator[str]:
    """What is known of a run that ended elsewhere: whom ranks waited for until then, and how the commands ended."""
    waited = waited_in_vain(seen.view)
    if waited and waited not in line:
        yield waited
    codes: dict[str, list[str]] = {}
    for node in seen.view.nodes:
        if node.note.exit_code is not None:
            by = f" ({node.note.signal})" if node.note.signal else ""
            codes.setdefault(f"{node.note.exit_code}{by}", []).append(node.note.host or "a machine")
    for code, hosts in codes.items():
        yield f"on {words.listed(hosts)}, pyddpdiag run ended with exit code {code}"


def _moving(seen: Look, moving: frozenset[int], looked_s: float) -> str:
    steps = [rank.last_step for rank in seen.view.ranks if rank.last_step is not None]
    where = f", now in step {max(steps)}" if steps else ""
    return f"the run is moving: in {looked_s:.1f} s {words.ranks(sorted(moving))} recorded something{where}."


def _unsure(seen: Look, ranks: Sequence[RankState]) -> str:
    """Why nobody can be named."""
    view = seen.view
    if waited := waited_in_vain(view):
        return waited
    if all(rank.state in ("dead", "closed", "absent") for rank in ranks):
        return (
            "every process is gone, not all noted a normal end, and nothing was in flight. Some scripts end like "
            "that, or all were killed at once."
        )
    waits = _waits(view.awaited)
    silent = quiet_ms(view)
    if all(rank.state in ("unseen", "closed", "absent") for rank in ranks):
        hosts = sorted({rank.host for rank in ranks if rank.host})
        there = words.listed(hosts) or "its host"
        return f"no rank's process can be seen from here{waits}. Run this command on {there}."
    if silent is None:
        return f"some ranks have recorded nothing yet{waits}."
    step_ms = view.judged.wall_ms
    threshold = threshold_ms(step_ms, STILL_MS)
    if silent >= threshold:
        return (
            f"for {silent / 1e3:.0f} s no rank has recorded anything, and none waits for another. They may evaluate, "
            "or write a checkpoint; their stacks say more."
        )
    known = f"a step takes {step_ms / 1e3:.2g} s" if step_ms == step_ms else "no step has been finished yet"
    return (
        f"nothing was recorded for {silent / 1e3:.1f} s, and {known}, so that is not a standstill before "
        f"{threshold / 1e3:.0f} s{waits}. Look again then."
    )


def _waits(awaited: Sequence[Awaited]) -> str:
    if not awaited:
        return ""
    most = max(awaited, key=lambda one: len(one.waiting))
    text = f"; {words.ranks(most.waiting)} {words.verb(most.waiting, 'waits', 'wait')} in {most.kind} {most.what}"
    return text + (f", which {words.ranks(most.missing)} never began" if most.missing else "")


def _suspects(seen: Look, ranks: Sequence[RankState], findings: Sequence[Finding]) -> tuple[int, ...]:
    """The ranks whose stacks say more, the most wanted first: those that can still be asked."""
    asked = [rank.rank for rank in ranks if rank.state in ("busy", "waiting", "stopped", "moving")]
    named = [one.rank for one in findings if one.rank is not None]
    missing = [rank for one in seen.view.awaited for rank in one.missing]
    waiting = [rank for one in seen.view.awaited for rank in one.waiting]
    # Where the culprit can be asked, the others only wait for it.
    first = [rank for rank in dict.fromkeys([*named, *missing]) if rank in asked]
    return (
        tuple(first) if first else tuple(rank for rank in dict.fromkeys([*waiting, *asked]) if rank in asked)
    )
