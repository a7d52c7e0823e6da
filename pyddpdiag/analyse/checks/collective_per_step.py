"""A small collective in every step, outside the passes: of the script's own mostly a value to log, or of a framework's
loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyddpdiag.analyse.bounds import METRICS, SMALL_CALL, matters
from pyddpdiag.analyse.calls.callers import in_each_step, leave_it, package_of, places
from pyddpdiag.analyse.calls.recurring import Recurring, met
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import sure_median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.callers import Caller
from pyddpdiag.model.words import milliseconds, percent, size

NAMES: Final = (
    "gloo:all_reduce",
    "gloo:all_gather",
    "gloo:reduce",
    "gloo:gather",
    "gloo:broadcast",
    "gloo:barrier",
)

EVERY: Final = 50


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    if not steps.can_judge or not len(view.occurrences) or _mixed_up(view):
        return
    for name in NAMES:
        for found in view.calls_in_steps.find(name, beside=False):
            if found.bytes <= SMALL_CALL:
                yield from _by_caller(view, found)


def _by_caller(view: RunView, found: Recurring) -> Iterator[Finding]:
    """One finding for the script's calls, and one for those of a package that owns the loop."""
    called = in_each_step(view.sidecars, found.name, found.ranks, len(found.known_ms))
    theirs = [one for one in called if one.package]
    own = [one for one in called if not one.package]
    if own or not theirs:
        yield _of(view, found, own, called)
    if theirs:
        yield _of(view, found, theirs, called)


def _of(view: RunView, found: Recurring, mine: Sequence[Caller], called: Sequence[Caller]) -> Finding:
    """Of the calls of `mine`, which are all of the script or all of a package, among those of all that are `called`."""
    steps = view.judged
    part = sum(one.calls for one in mine) / max(1, sum(one.calls for one in called)) if mine else 1.0
    # Where others call the same operation, the records cannot tell whose calls took how long.
    cost, calls = part * found.typical_ms, round(part * found.calls, 2)
    amount_bytes = sum(one.bytes for one in mine) if len(mine) < len(called) else found.bytes
    barrier, package = found.name == "gloo:barrier", package_of(mine)
    amount = "" if barrier or not amount_bytes else f" of {size(amount_bytes)}"
    what = package or ("the script" if barrier else "the script, for a value to log as a rule,")
    at = f" at {places(mine)}" if mine else ""
    saved = 0.0 if package else cost * (EVERY - 1) / EVERY
    return Finding(
        kind="collective_per_step",
        severity="warning" if matters(part * sure_median(found.known_ms), steps.wall_ms) else "note",
        message=f"{what} calls {found.name}{amount} in every step, outside the passes{at} "
        f"({calls:g} {'call' if calls == 1 else 'calls'} a step): {milliseconds(cost)} of a step of "
        f"{milliseconds(steps.wall_ms)} ({percent(cost / steps.wall_ms)}){met(found, steps.wall_ms)}.",
        confidence="medium"
        if barrier or package or (amount_bytes <= METRICS and "reduce" in found.name)
        else "low",
        cost_ms=cost,
        where=mine[0].where if mine else None,
        evidence={
            "name": found.name,
            "calls_per_step": calls,
            "bytes": amount_bytes,
            "call_ms": part * found.typical_took_ms,
            "cost_ms": cost,
            "saved_ms": saved,
            "step_ms": steps.wall_ms,
            "steps": len(found.known_ms),
            **({"package": package} if package else {}),
        },
        change_mind="It calls them only because of a setting or a callback that the script gave it."
        if package
        else "Each step needs its result: a decision that all ranks make together, a norm over the ranks, a "
        "loss scale.",
        advice=leave_it(package) if package else _advice(barrier=barrier, saved=saved),
    )


def _advice(*, barrier: bool, saved: float) -> str:
    if barrier:
        return "DDP keeps the ranks together by itself: leave the barrier out."
    return (
        f"Add the values up on each rank (total += loss.detach()) and reduce them every {EVERY} steps: if step % "
        f"{EVERY} == 0: dist.all_reduce(total). That would save about {milliseconds(saved)} a step."
    )


def _mixed_up(view: RunView) -> bool:
    """Whether layers' collectives may lie in passes that have no record: under no_sync there is none."""
    modules = [one for sidecar in view.sidecars.values() for one in sidecar.modules.values()]
    layers = any(one.ddp.get("sync_batch_norms") for one in modules)
    return layers and bool((view.steps.buckets[view.steps.judged] == 0).any())


CHECK = Check(("collective_per_step",), _look, per_group=True, rests_on="waits")
