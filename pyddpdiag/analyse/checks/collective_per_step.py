"""A small collective of the script's own in every step, outside the passes: mostly a value to log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyddpdiag.analyse.bounds import METRICS, SMALL_CALL, matters
from pyddpdiag.analyse.calls.recurring import Recurring, met
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import sure_median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, percent, size

NAMES: Final = (
    "gloo:all_reduce",
    "gloo:all_gather",
    "gloo:allgather",
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
                yield _of(view, found)


def _of(view: RunView, found: Recurring) -> Finding:
    steps = view.judged
    cost = found.typical_ms
    barrier = found.name == "gloo:barrier"
    amount = "" if barrier or not found.bytes else f" of {size(found.bytes)}"
    what = "the script" if barrier else "the script, for a value to log as a rule,"
    saved = cost * (EVERY - 1) / EVERY
    return Finding(
        kind="collective_per_step",
        severity="warning" if matters(sure_median(found.known_ms), steps.wall_ms) else "note",
        message=f"{what} calls {found.name}{amount} in every step, outside the passes "
        f"({found.calls:g} {'call' if found.calls == 1 else 'calls'} a step): {milliseconds(cost)} of a step of "
        f"{milliseconds(steps.wall_ms)} ({percent(cost / steps.wall_ms)}){met(found, steps.wall_ms)}.",
        confidence="medium" if barrier or (found.bytes <= METRICS and "reduce" in found.name) else "low",
        cost_ms=cost,
        evidence={
            "name": found.name,
            "calls_per_step": found.calls,
            "bytes": found.bytes,
            "call_ms": found.typical_took_ms,
            "cost_ms": cost,
            "saved_ms": saved,
            "step_ms": steps.wall_ms,
            "steps": len(found.known_ms),
        },
        change_mind="Each step needs its result: a decision that all ranks make together, a norm over the ranks, a "
        "loss scale.",
        advice="DDP keeps the ranks together by itself: leave the barrier out."
        if barrier
        else f"Add the values up on each rank (total += loss.detach()) and reduce them every {EVERY} steps: if step % "
        f"{EVERY} == 0: dist.all_reduce(total). That would save about {milliseconds(saved)} a step.",
    )


def _mixed_up(view: RunView) -> bool:
    """Whether layers' collectives may lie in passes that have no record: under no_sync there is none."""
    modules = [one for sidecar in view.sidecars.values() for one in sidecar.modules.values()]
    layers = any(one.ddp.get("sync_batch_norms") for one in modules)
    return layers and bool((view.steps.buckets[view.steps.judged] == 0).any())


CHECK = Check(("collective_per_step",), _look, per_group=True, rests_on="waits")
