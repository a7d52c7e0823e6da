"""DDP sends the module's buffers from one rank to the others before each forward pass, and the others wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import confidence, matters
from pyddpdiag.analyse.calls.recurring import met
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import sure_median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, milliseconds, percent, size


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    modules = [one for sidecar in view.sidecars.values() for one in sidecar.modules.values()]
    sent = max(
        (one.ddp.get("buffer_bytes", 0) for one in modules if one.ddp.get("broadcast_buffers")), default=0
    )
    if not steps.can_judge or not sent:
        return
    for found in view.calls_in_steps.find("gloo:broadcast"):
        # Other broadcasts are the script's own.
        if not found.bytes or found.bytes % sent:
            continue
        cost = found.typical_ms
        buffers = max(one.ddp.get("buffers", 0) for one in modules)
        yield Finding(
            kind="buffer_broadcast",
            severity="warning" if matters(sure_median(found.known_ms), steps.wall_ms) else "note",
            message=f"{count(buffers, 'buffer')} of {size(sent)} in all are sent to every rank before each forward "
            f"pass, {found.calls:g} {'call' if found.calls == 1 else 'calls'} a step: {milliseconds(cost)} of a step "
            f"of {milliseconds(steps.wall_ms)} ({percent(cost / steps.wall_ms)}){met(found, steps.wall_ms)}.",
            confidence=confidence(len(found.known_ms)),
            cost_ms=cost,
            evidence={
                "calls_per_step": found.calls,
                "buffers": buffers,
                "bytes": sent,
                "broadcast_ms": found.typical_took_ms,
                "cost_ms": cost,
                "step_ms": steps.wall_ms,
                "steps": len(found.known_ms),
            },
            change_mind="The ranks' buffers must be equal in training: something else than BatchNorm's running "
            "statistics is in them, and each rank changes it in its own way.",
            advice=f"{view.advice.own_buffers()}: BatchNorm does not use its running statistics in training, so each "
            "rank may keep its own; what is saved and evaluated is rank 0's in any case. Or fewer layers with buffers "
            "(GroupNorm has none).",
        )


CHECK = Check(("buffer_broadcast",), _look, per_group=True, rests_on="waits")
