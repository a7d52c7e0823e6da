"""Gradients are cleared at the wrong moment: never between the optimizer's steps, or between passes that accumulate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyddpdiag.analyse.bounds import LEAST_STEPS, NEARLY_ALL
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.clearing import Clearing

_SAID: Final = {
    "kept": (
        "each step uses the gradients of earlier steps again: in {times} of the {steps} steps that were looked at, no "
        "backward pass began without gradients that an earlier step had used",
        "The script keeps a part of the gradients on purpose, as a momentum of its own.",
        "Call optimizer.zero_grad() in each step: after optimizer.step(), or before the first backward pass.",
    ),
    "lost": (
        "gradients that passes under no_sync() were to accumulate are thrown away: in {times} of the {steps} steps "
        "that were looked at, each backward pass began without gradients, so only the last one counts",
        "The script reads the gradients of those passes, or keeps them elsewhere, before it clears them.",
        "Call optimizer.zero_grad() only after optimizer.step(), and not before each backward pass.",
    ),
}


def _look(view: RunView) -> Iterator[Finding]:
    seen = [
        (one, stepped, name)
        for sidecar in view.sidecars.values()
        for module, one in sidecar.training.clearing.items()
        for name in _SAID
        if one.steps >= LEAST_STEPS and _times(one, name) >= NEARLY_ALL * one.steps
        for stepped in sidecar.training.stepped
        if stepped.module == module
    ]
    if not seen:
        return
    one, stepped, name = max(seen, key=lambda each: _times(each[0], each[2]))
    said, mind, advice = _SAID[name]
    yield Finding(
        kind="gradients_cleared",
        severity="warning",
        message=said.format(times=_times(one, name), steps=one.steps)
        + (f"; {stepped.optimizer} steps at {stepped.where[0]}." if stepped.where else "."),
        confidence="high",
        cost_ms=None,  # it costs no time: the model learns something else
        where=stepped.where[0] if stepped.where else None,
        evidence={
            "steps_looked_at": one.steps,
            "steps_with_older_gradients": one.kept,
            "steps_of_last_pass": one.lost,
        },
        change_mind=mind,
        advice=advice,
    )


def _times(one: Clearing, name: str) -> int:
    return one.kept if name == "kept" else one.lost


CHECK = Check(("gradients_cleared",), _look, rests_on="records")
