"""Collectives that are no buckets take a part of every step: a program's own, or those of layers that synchronise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, LARGE_SHARE, LEAST_MS, confidence
from pyddpdiag.analyse.calls.callers import in_each_step, leave_it, package_of, places
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.filing import COLLECTIVE
from pyddpdiag.analyse.grouped import sure_median
from pyddpdiag.analyse.shares import share_of_median
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, percent, size

_BROADCAST: Final = "gloo:broadcast"

_OWN: Final = (
    "Call them less often, put several values into one call, or begin them with async_op=True and wait where the "
    "result is needed."
)


def _look(view: RunView) -> Iterator[Finding]:
    if not len(view.occurrences):
        return  # without buckets all communication is of this kind, and may be hidden behind computation
    steps = view.judged
    least = view.held_up.ms
    share = share_of_median(least, steps.wall_ms)
    if not steps.can_judge or sure_median(least) < LEAST_MS or not share.at_least >= HEALTHY_SHARE:
        return
    calls = view.held_up.heaviest
    if calls is None:
        return
    cost = median(least)
    # The looks know only the script's lines, and that a package's loop runs below one of them.
    called = in_each_step(view.sidecars, calls.name, steps.ranks, len(steps.step))
    package = package_of(called)
    where = None if called else view.lines.most_of(steps.step, COLLECTIVE)
    at = f", at {places(called)}" if called else ""
    by = f" by {package}" if package else ""
    amount = f" of {size(calls.bytes)}" if calls.bytes else ""
    often = f"{calls.per_step:g} {'call' if calls.per_step == 1 else 'calls'}{amount} a step"
    yield Finding(
        kind="other_collectives",
        severity="warning",
        message=f"collectives other than buckets hold up the steps: {milliseconds(cost)} of "
        f"{milliseconds(steps.wall_ms)} ({percent(share.value)}) are spent in them, most of it in "
        f"{calls.name}, {often}{by}{at}." + (f" {where.says('the time in them')}." if where else ""),
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
        if calls.name == _BROADCAST and not called
        else "They run beside the computation (async_op=True), and nobody waits for them.",
        advice=leave_it(package)
        if package
        else _of_buffers(view)
        if calls.name == _BROADCAST and not called
        else _of_layers(view) + _OWN,
    )


def _of_layers(view: RunView) -> str:
    """What helps where the model's own layers call collectives; empty: it has none that are known to."""
    modules = [one for sidecar in view.sidecars.values() for one in sidecar.modules.values()]
    layers = max((one.ddp.get("sync_batch_norms", 0) for one in modules), default=0)
    if not layers:
        return ""
    return (
        f"{layers} SyncBatchNorm {'layer meets' if layers == 1 else 'layers meet'} the other ranks in each pass, "
        "forward and backward: where the batch of a rank is large enough by itself (32 and more), BatchNorm does as "
        "well, and GroupNorm needs no other rank. Calls of the script's own: "
    )


def _of_buffers(view: RunView) -> str:
    """What helps against broadcasts: mostly DDP itself calls them, before each forward pass, and a script cannot."""
    return (
        "Unless the script calls them, these are DDP's own, of the module's buffers before each forward pass: "
        f"{view.advice.own_buffers()} where the ranks' buffers need not be equal (BatchNorm's running statistics), or "
        "fewer layers with buffers (GroupNorm has none). The script's own: less often, or several values in one call."
    )


CHECK = Check(("other_collectives",), _look, per_group=True, rests_on="waits")
"""A rank that waits there for a late one is not held up by the collective: the least of the ranks counts, and of a
broadcast what a receiver waits once the root has begun it."""
