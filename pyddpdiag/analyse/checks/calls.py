"""Collectives in each step that are no buckets: of DDP itself, of layers, and of the script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyddpdiag.analyse.bounds import (
    LARGE_SHARE,
    LEAST_MS,
    METRICS,
    SMALL_CALL,
    TWICE,
    confidence,
    severity,
)
from pyddpdiag.analyse.calls.callers import in_each_step, leave_it, package_of, places
from pyddpdiag.analyse.calls.costs import Recurring, met
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.filing import COLLECTIVE
from pyddpdiag.analyse.grouped import sure_median
from pyddpdiag.analyse.shares import share_of_median
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.callers import Caller
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import at, count, milliseconds, percent, size

_BROADCAST: Final = "gloo:broadcast"
_LOGGED: Final = tuple(
    f"gloo:{name}" for name in ("all_reduce", "all_gather", "reduce", "gather", "broadcast", "barrier")
)
EVERY: Final = 50


def _of_step(view: RunView, cost_ms: float) -> str:
    step_ms = view.judged.wall_ms
    share = f" ({percent(cost_ms / step_ms)})" if step_ms > 0 else ""
    return f"{milliseconds(cost_ms)} of a step of {milliseconds(step_ms)}{share}"


def _times(calls: float) -> str:
    return f"{calls:g} {'call' if calls == 1 else 'calls'}"


def _layers(view: RunView, name: str) -> int:
    """The most that a rank's module has of this."""
    modules = (one for sidecar in view.sidecars.values() for one in sidecar.modules.values())
    return max((one.ddp.get(name, 0) for one in modules), default=0)


def _by_hand(view: RunView) -> Iterator[Finding]:
    """The script averages the gradients though DDP has averaged them."""
    looked = [one.training.averaged_again for one in view.sidecars.values() if one.training.averaged_again]
    seen = [max(of_rank.values(), key=lambda each: each.times) for of_rank in looked]
    again = min(seen, key=lambda one: one.times, default=None)
    if again is None or again.times < TWICE:
        return
    # The calls among which they are; none where they do not come back in each of the judged steps.
    all_reduces = view.calls_in_steps.find("gloo:all_reduce", beside=False) if view.judged.can_judge else ()
    found = max(all_reduces, key=lambda one: one.bytes, default=None)
    cost = found.typical_ms * min(1.0, again.bytes / max(found.bytes, 1)) if found is not None else None
    sums = " Unless the script divides the sums, they are too large." if again.op == "SUM" else ""
    yield Finding(
        kind="averaged_twice",
        severity="warning",
        message=f"the script reduces the gradients of all parameters{at(again.where)}, "
        f"{count(again.calls, 'all-reduce')} of {size(again.bytes)} a step, and DistributedDataParallel has averaged "
        "them in backward already"
        f"{'' if cost is None else f': {_of_step(view, cost)}'}. Seen in {again.times} of {count(again.looks, 'step')} "
        f"that were looked at.{sums}",
        confidence="high",
        where=again.where or None,
        cost_ms=cost,
        evidence={
            "calls_per_step": again.calls,
            "bytes": again.bytes,
            "steps_seen": again.times,
            "steps_looked_at": again.looks,
            "ranks": len(seen),
            "cost_ms": cost,
            "step_ms": view.judged.wall_ms,
        },
        change_mind="The ranks' gradients differ after backward: something changed them on each rank in between.",
        advice="Leave these all-reduces out: after loss.backward() the gradients are the averages of all ranks. What "
        "averages them by hand is for a model that DistributedDataParallel does not wrap.",
    )


def _buffers(view: RunView) -> Iterator[Finding]:
    """DDP sends the module's buffers from one rank to the others before each forward pass."""
    modules = [one for sidecar in view.sidecars.values() for one in sidecar.modules.values()]
    sent = max(
        (one.ddp.get("buffer_bytes", 0) for one in modules if one.ddp.get("broadcast_buffers")), default=0
    )
    step_ms = view.judged.wall_ms
    for found in view.calls_in_steps.find(_BROADCAST) if view.judged.can_judge and sent else ():
        # Other broadcasts are the script's own.
        if not found.bytes or found.bytes % sent:
            continue
        cost, buffers = found.typical_ms, _layers(view, "buffers")
        yield Finding(
            kind="buffer_broadcast",
            severity=severity(sure_median(found.known_ms), step_ms),
            message=f"{count(buffers, 'buffer')} of {size(sent)} in all are sent to every rank before each forward "
            f"pass, {_times(found.calls)} a step: {_of_step(view, cost)}{met(found, step_ms)}.",
            confidence=confidence(len(found.known_ms)),
            cost_ms=cost,
            evidence={
                "calls_per_step": found.calls,
                "buffers": buffers,
                "bytes": sent,
                "broadcast_ms": found.typical_took_ms,
                "cost_ms": cost,
                "step_ms": step_ms,
                "steps": len(found.known_ms),
            },
            change_mind="The ranks' buffers must be equal in training: something else than BatchNorm's running "
            "statistics is in them, and each rank changes it in its own way.",
            advice=f"{view.advice.own_buffers()}: BatchNorm does not use its running statistics in training, so each "
            "rank may keep its own; what is saved and evaluated is rank 0's in any case. Or fewer layers with buffers "
            "(GroupNorm has none).",
        )


def _logged(view: RunView) -> Iterator[Finding]:
    """A small one outside the passes: of the script's own mostly a value to log, or of a framework's loop."""
    steps = view.judged
    # Under no_sync, layers' collectives may lie in passes that have no record.
    mixed_up = _layers(view, "sync_batch_norms") and (view.steps.buckets[view.steps.judged] == 0).any()
    if not steps.can_judge or not len(view.occurrences) or mixed_up:
        return
    small = (
        one
        for name in _LOGGED
        for one in view.calls_in_steps.find(name, beside=False)
        if one.bytes <= SMALL_CALL
    )
    for found in small:
        called = in_each_step(view.sidecars, found.name, found.ranks, len(found.known_ms))
        theirs = [one for one in called if one.package]
        own = [one for one in called if not one.package]
        for mine in (own, theirs) if called else (own,):
            if mine or not called:
                yield _of(view, found, mine, called)


def _of(view: RunView, found: Recurring, mine: Sequence[Caller], called: Sequence[Caller]) -> Finding:
    """Of the calls of `mine`, which are all of the script or all of a package, among those of all that are `called`."""
    step_ms = view.judged.wall_ms
    part = sum(one.calls for one in mine) / max(1, sum(one.calls for one in called)) if mine else 1.0
    # Where others call the same operation, the records cannot tell whose calls took how long.
    cost, calls = part * found.typical_ms, round(part * found.calls, 2)
    amount = sum(one.bytes for one in mine) if len(mine) < len(called) else found.bytes
    barrier, package = found.name == "gloo:barrier", package_of(mine)
    what = package or ("the script" if barrier else "the script, for a value to log as a rule,")
    saved = 0.0 if package else cost * (EVERY - 1) / EVERY
    advice = (
        f"If only a log needs these values, add them up on each rank (total += loss.detach()) and reduce them every "
        f"{EVERY} steps: if step % {EVERY} == 0: dist.all_reduce(total). That would save about {milliseconds(saved)} "
        "a step."
    )
    return Finding(
        kind="collective_per_step",
        severity=severity(part * sure_median(found.known_ms), step_ms),
        message=f"{what} calls {found.name}{'' if barrier or not amount else f' of {size(amount)}'} in every step, "
        f"outside the passes{at(places(mine))} ({_times(calls)} a step): {_of_step(view, cost)}{met(found, step_ms)}.",
        confidence="medium"
        if barrier or package or (amount <= METRICS and "reduce" in found.name)
        else "low",
        cost_ms=cost,
        where=mine[0].where if mine else None,
        evidence={
            "name": found.name,
            "calls_per_step": calls,
            "bytes": amount,
            "call_ms": part * found.typical_took_ms,
            "cost_ms": cost,
            "saved_ms": saved,
            "step_ms": step_ms,
            "steps": len(found.known_ms),
            **({"package": package} if package else {}),
        },
        change_mind="It calls them only because of a setting or a callback that the script gave it."
        if package
        else "Each step needs its result: a decision of all ranks, a norm over the ranks, a loss scale.",
        advice=leave_it(package)
        if package
        else "DDP keeps the ranks together by itself: leave the barrier out."
        if barrier
        else advice,
    )


def _others(view: RunView) -> Iterator[Finding]:
    """A rank that waits there for a late one is not held up by the collective: the least of the ranks counts, and of a
    broadcast what a receiver waits once the root has begun it."""
    steps, least, calls = view.judged, view.held_up.ms, view.held_up.heaviest
    # Without buckets all communication is of this kind, and may be hidden behind computation.
    if not steps.can_judge or not len(view.occurrences) or calls is None:
        return
    share, sure_ms = share_of_median(least, steps.wall_ms), sure_median(least)
    if sure_ms < LEAST_MS or severity(sure_ms, steps.wall_ms) == "note":
        return
    cost = median(least)
    # The looks know only the script's lines, and that a package's loop runs below one of them.
    called = in_each_step(view.sidecars, calls.name, steps.ranks, len(steps.step))
    package, ddps = package_of(called), calls.name == _BROADCAST and not called
    where = None if called else view.lines.most_of(steps.step, COLLECTIVE)
    by = (f" by {package}" if package else "") + (f", at {places(called)}" if called else "")
    amount = f" of {size(calls.bytes)}" if calls.bytes else ""
    yield Finding(
        kind="other_collectives",
        severity="warning",
        message=f"collectives other than buckets hold up the steps: {milliseconds(cost)} of "
        f"{milliseconds(steps.wall_ms)} ({percent(share.value)}) are spent in them, most of it in {calls.name}, "
        f"{_times(calls.per_step)}{amount} a step{by}."
        + (f" {where.says('the time in them')}." if where else ""),
        confidence=confidence(share.steps) if share.at_least >= LARGE_SHARE else "low",
        since_step=int(steps.step[int((least > 0).argmax())]),
        cost_ms=cost,
        where=called[0].where if called else str(where.line) if where else None,
        evidence={
            "name": calls.name,
            "calls_per_step": calls.per_step,
            "bytes": calls.bytes,
            "other_ms": cost,
            "step_ms": steps.wall_ms,
            "share": share.value,
            "share_at_least": share.at_least,
            **(where.facts if where else {}),
        },
        change_mind="The script calls these broadcasts itself."
        if ddps
        else "They run beside the computation (async_op=True), and nobody waits for them.",
        advice=leave_it(package) if package else _of_ddp(view) if ddps else _own(view),
    )


def _own(view: RunView) -> str:
    """What helps where the script, or the model's own layers, call collectives."""
    layers = _layers(view, "sync_batch_norms")
    of_layers = (
        f"{layers} SyncBatchNorm {'layer meets' if layers == 1 else 'layers meet'} the other ranks in each pass, "
        "forward and backward: where the batch of a rank is large enough by itself (32 and more), BatchNorm does as "
        "well, and GroupNorm needs no other rank. Calls of the script's own: "
    )
    return of_layers * bool(layers) + (
        "Call them less often, put several values into one call, or begin them with async_op=True and wait where the "
        "result is needed."
    )


def _of_ddp(view: RunView) -> str:
    """What helps against broadcasts: mostly DDP itself calls them, before each forward pass, and a script cannot."""
    return (
        "Unless the script calls them, these are DDP's own, of the module's buffers before each forward pass: "
        f"{view.advice.own_buffers()} where the ranks' buffers need not be equal (BatchNorm's running statistics), or "
        "fewer layers with buffers (GroupNorm has none). The script's own: less often, or several values in one call."
    )


CHECKS = tuple(
    Check((kind,), look, per_group=True, rests_on="waits")
    for kind, look in (
        ("averaged_twice", _by_hand),
        ("buffer_broadcast", _buffers),
        ("collective_per_step", _logged),
        ("other_collectives", _others),
    )
)
