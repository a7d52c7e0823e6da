"""The run stands still: which rank is missing from the operation in which the others wait, if any.

The waiting ranks say nothing about the cause, whatever their errors will say later; the rank that never began
their operation does. If none is missing, the operation itself does not end: the transport is to blame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from pyddpdiag.analyse.batches import out_of_batches
from pyddpdiag.analyse.bounds import ALIVE_MS
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.endings import Interruption
from pyddpdiag.analyse.first_failure import FirstFailure
from pyddpdiag.analyse.links.link_faults import named
from pyddpdiag.analyse.standstill import Awaited, threshold_ms
from pyddpdiag.analyse.starts import waited_for
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Confidence, Finding, culprit
from pyddpdiag.model.start import Start
from pyddpdiag.model.words import at, ranks, verb
from pyddpdiag.output import clean

_BUFFERS: Final = (
    "Each forward pass of DDP broadcasts the buffers (BatchNorm's) and waits for all ranks, in an evaluation, too: "
    "where one rank evaluates alone, call ddp.module(batch)."
)
_LEFT_OUT: Final = (
    "It left out an operation, or calls another one: look for branches that differ between ranks (an end of the loop, "
    "a batch that is skipped, what rank 0 alone does), and for different numbers of batches: all ranks must decide "
    "alike. Sums since then may be of different gradients."
)


def _look(view: RunView) -> Iterator[Finding]:
    if view.run.starts and (found := list(waited_for([*view.run.starts, *_begun(view)]))):
        yield from found
        return
    failure, still = view.first_failure, view.standstill
    if view.interruption is not None:
        yield from _until_interrupted(view, view.interruption)
        return
    if failure is not None and transfer_stood(view, failure):
        # What a look at that time had said: all ranks were in one operation, and lived, until one of them gave up.
        first = failure.error
        step = Awaited(first.kind, first.what, first.step, failure.members, ())
        gave_up = f", until rank {first.rank} gave up"
        yield _stalled(view, step, failure.stood_ms, "stood still: every rank had begun", gave_up)
    if still is None or still.awaited is None:
        return
    if still.awaited.missing:
        yield from _missing(view, still.awaited, still.silent_ms)
    elif not still.awaited.unsure:
        yield _stalled(view, still.awaited, still.silent_ms, "stands still: every rank began")


def _stalled(view: RunView, awaited: Awaited, silent_ms: float, how: str, until: str = "") -> Finding:
    """All ranks are, or were, in one operation; with the links over which nothing was confirmed any more."""
    silent = sorted((link for link in view.links if link.unconfirmed), key=lambda link: -link.unconfirmed)
    fault = view.link_faults.culprit(silent, receiver=False)
    over = f"; nothing that was sent over {named(fault, silent, link=True)} was confirmed any more"
    return Finding(
        kind="transport_stalled",
        severity="error",
        message=f"the transfer {how} {_named(awaited)}, and for {silent_ms / 1e3:.0f} s nothing has happened on any"
        f"{until}{over if silent else ''}.",
        # Readings of connections alone tell a dead link from a process that was kept from running inside it.
        confidence="high" if silent or not until else "medium",
        rank=fault.rank,
        peer=fault.peer,
        bucket=_bucket(awaited),
        since_step=awaited.step,
        evidence={
            **_evidence(silent_ms, awaited),
            "unconfirmed_segments": sum(link.unconfirmed for link in silent),
        },
        change_mind="A process hangs inside the operation, or the machines are so busy that they hardly run.",
        advice=_where_it_stands(view, awaited.what),
    )


def transfer_stood(view: RunView, failure: FirstFailure) -> bool:
    """Whether all ranks were in what failed, and lived, for as long as is a standstill.

    A rank that was stopped, or whose machine was lost, gives no sign of life meanwhile.
    """
    lived = all(view.endings[rank].outlived(failure.at_ms - ALIVE_MS) for rank in failure.members)
    return lived and failure.stood_ms >= threshold_ms(view.judged.wall_ms)


def _evidence(silent_ms: float, awaited: Awaited) -> dict[str, float | int | str | None]:
    waiting, missing = len(awaited.waiting), len(awaited.missing)
    return {"silent_ms": silent_ms, "waiting": waiting, "missing": missing, "operation": awaited.what}


def _begun(view: RunView) -> Iterator[Start]:
    """The ranks that train, as those that do not yet: what they wait in."""
    errors = [(one.rank, one.kind, one.what, 0.0, one.text or "an error") for one in view.errors.first]
    waits = [(one.rank, one.kind, one.what, one.open_ms / 1e3, "") for one in view.in_flight.first]
    stats = {rank.rank: rank for rank in view.ranks}
    for rank, kind, what, for_s, error in errors + waits:
        one, end = stats[rank], view.endings[rank]
        process = "dead" if one.closed else one.process
        yield Start(
            rank, view.run.world_size, one.host, 0, process, end.where, f"{kind} {what}", for_s, error
        )


def _where_it_stands(view: RunView, what: str) -> str:
    """What to look at where all ranks are in one operation: the way that it takes."""
    shared = any(one.shared for one in view.in_flight.first if one.what == what)
    if shared and len({rank.host for rank in view.ranks}) == 1:
        return (
            "It goes through shared memory, over no network: look at the ranks' own stacks (py-spy dump), and at what "
            "else the cores of this host do."
        )
    return (
        "Look at the network between the hosts: is every peer reachable on the interface that Gloo uses "
        "(GLOO_SOCKET_IFNAME), and do large packets pass (MTU)?"
    )


def _missing(view: RunView, awaited: Awaited, silent_ms: float) -> Iterator[Finding]:
    """Those that never began what others wait in now, in which nothing happens: some run, in code of their own."""
    stats = {rank.rank: rank for rank in view.ranks}
    # A rank that waits elsewhere skipped this operation.
    elsewhere = {rank for rank in awaited.missing if stats[rank].in_flight or stats[rank].closed}
    stuck = [rank for rank in awaited.missing if rank not in elsewhere and stats[rank].process == "running"]
    behind = [
        rank
        for rank in awaited.missing
        if rank not in stuck and stats[rank].process not in ("dead", "stopped")
    ]
    if stuck:
        yield _stuck(view, awaited, stuck, silent_ms)
    if behind:
        yield _behind(view, awaited, behind, silent_ms)


def _stuck(view: RunView, awaited: Awaited, stuck: Sequence[int], own_ms: float) -> Finding:
    """These ranks are in their own code, or were until somebody ended the run."""
    over = view.interruption is not None
    pids = {header.rank: header.pid for header in view.headers}
    been = "had been" if over else f"{verb(stuck, 'is', 'are')} stuck"
    wait = "waited" if over else verb(awaited.waiting, "waits", "wait")
    return Finding(
        kind="rank_stuck",
        severity="error",
        message=f"{ranks(stuck)} {been} in {_own_code(view, stuck)} for {own_ms / 1e3:.0f} s: "
        f"{ranks(awaited.waiting)} {wait} in {_named(awaited)}, which {verb(stuck, 'it', 'they')} never began.",
        confidence=_confidence(awaited),
        rank=culprit(stuck),
        bucket=_bucket(awaited),
        since_step=awaited.step,
        where=_line(view, stuck),
        evidence=_evidence(own_ms, awaited),
        change_mind="It does something long on purpose (a checkpoint, an evaluation) while the others go on.",
        advice="Look at what it did there."
        if over
        else f"Look at what it does: py-spy dump --pid {pids[stuck[0]]}",
    )


def _behind(view: RunView, awaited: Awaited, behind: Sequence[int], silent_ms: float) -> Finding:
    """These ranks wait in another operation than the others, or are over."""
    theirs = {_named(each) for each in view.awaited if not set(behind).isdisjoint(each.waiting)}
    there = (
        f": {verb(behind, 'it', 'they')} waited in {' and '.join(sorted(theirs))}{at(_line(view, behind))}"
    )
    return Finding(
        kind="rank_behind",
        severity="error",
        message=f"for {silent_ms / 1e3:.0f} s, {ranks(awaited.waiting)} waited in {_named(awaited)}"
        f"{at(_line(view, awaited.waiting))}, which {ranks(behind)} never began{there if theirs else ''}.",
        confidence=_confidence(awaited),
        rank=culprit(behind),
        bucket=_bucket(awaited),
        since_step=awaited.step,
        where=_line(view, behind),
        evidence=_evidence(silent_ms, awaited),
        change_mind="Its trace lost records.",
        advice=_ran_out(view, behind) or _astray(view, behind),
    )


def _ran_out(view: RunView, behind: Sequence[int]) -> str:
    """What to do where these ranks came to their end before the others; empty: they did not."""
    closed = {rank.rank for rank in view.ranks if rank.closed and not rank.in_flight}
    uneven = out_of_batches(view.sidecars, behind)
    if uneven is not None:
        said = uneven.said
        return f"{said[:1].upper()}{said[1:]}. {view.advice.uneven()}"
    return view.advice.uneven() if closed.issuperset(behind) else ""


def _astray(view: RunView, behind: Sequence[int]) -> str:
    """What to do where these ranks wait in another operation than the others."""
    waits = {one.what for one in view.awaited if not set(behind).isdisjoint(one.waiting)}
    sends = any(
        one.ddp.get("broadcast_buffers") and one.ddp.get("buffers")
        for rank in behind
        for one in view.sidecars[rank].modules.values()
    )
    return _BUFFERS if waits == {"gloo:broadcast"} and sends else _LEFT_OUT


def _until_interrupted(view: RunView, interruption: Interruption) -> Iterator[Finding]:
    """Somebody ended a run that stood still: whom the others waited for."""
    at_ms = interruption.at_ms
    if at_ms == inf:
        return
    waits = [one for one in view.awaited if one.missing]
    if not waits and view.first_failure is not None:
        first, missing = view.first_failure.error, view.first_failure.missing
        failed = tuple(sorted({error.rank for error in view.errors.first}))
        waits = [Awaited(first.kind, first.what, first.step, failed, missing)]
    in_flight = {rank.rank for rank in view.ranks if rank.in_flight}

    def stood_ms(those: Sequence[int]) -> float:
        """How long these ranks had recorded nothing; 0: not long enough for a standstill."""
        silent_ms = at_ms - max((view.endings[rank].newest_ms for rank in those), default=at_ms)
        return silent_ms if silent_ms >= threshold_ms(view.judged.wall_ms) else 0.0

    for one in waits:
        stuck = [rank for rank in one.missing if rank not in in_flight]
        if own_ms := stood_ms(stuck):
            yield _stuck(view, one, stuck, own_ms)
    elsewhere = [one for one in view.awaited if one.missing and in_flight.issuperset(one.missing)]
    most = max(elsewhere, key=lambda each: len(each.waiting), default=None)
    if most is not None and (silent_ms := stood_ms((*most.missing, *most.waiting))):
        yield _behind(view, most, most.missing, silent_ms)


def _own_code(view: RunView, stuck: Sequence[int]) -> str:
    """What these ranks are in: a phase that has not ended, if there is one, or the line at which they were seen."""
    phases = {phase.name for phase in view.phases if phase.in_flight and phase.rank in stuck}
    if phases:
        return f"phase '{clean(min(phases))}'"
    return f"{verb(stuck, 'its', 'their')} own code{at(_line(view, stuck))}"


def _line(view: RunView, stuck: Sequence[int]) -> str | None:
    """The line at which all of these ranks were seen since their newest records."""
    lines = {view.endings[rank].where for rank in stuck}
    return lines.pop() or None if len(lines) == 1 else None


def _confidence(awaited: Awaited) -> Confidence:
    # Two ranks that wait in different operations wait for each other: either may be the one that went astray.
    alone = len(awaited.waiting) > len(awaited.missing) or awaited.kind == "bucket"
    return "high" if alone else "medium"


def _named(awaited: Awaited) -> str:
    where = f" of step {awaited.step}" if awaited.step is not None else ""
    return f"{awaited.kind} {awaited.what}{where}"


def _bucket(awaited: Awaited) -> str | None:
    return awaited.what if awaited.kind == "bucket" else None


CHECK = Check(("rank_stuck", "rank_behind", "transport_stalled"), _look, rests_on="own times")
