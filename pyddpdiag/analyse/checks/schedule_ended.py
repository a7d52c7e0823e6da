"""The learning rate became 0 before the end of the training: what comes after that learns nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import MATTERS_SHARE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.training import Stepped
from pyddpdiag.model.words import percent


def _look(view: RunView) -> Iterator[Finding]:
    found = [
        (rank, one)
        for rank, sidecar in sorted(view.sidecars.items())
        for one in sidecar.training.stepped
        if one.module is not None
        and _wasted(one) >= MATTERS_SHARE
        # Another one may train the rest of the module.
        and all(each.zero_since for each in sidecar.training.stepped if each.module == one.module)
    ]
    if found:
        yield _of(view, *max(found, key=lambda each: _wasted(each[1])))


def _wasted(one: Stepped) -> float:
    """The share of its steps that it made without a learning rate, after others."""
    return (one.steps - one.zero_since) / one.steps if one.zero_since and one.steps else 0.0


def _of(view: RunView, rank: int, one: Stepped) -> Finding:
    ranks = view.run.world_size
    rate = round(one.scheduler_rate or 0.0, 2)
    for_each_rank = ranks > 1 and rate == ranks
    said = ""
    if one.scheduler and rate not in (0.0, 1.0):
        said = f". {one.scheduler} makes {rate:g} steps for each of the optimizer's"
        said += ", one for each rank" if for_each_rank else ""
    return Finding(
        kind="schedule_ended",
        severity="error" if for_each_rank else "warning",
        message=f"the learning rate is 0 after step {one.zero_since} of {one.steps} of {one.optimizer}: "
        f"{percent(_wasted(one))} of them change nothing{said}.",
        confidence="high",
        where=one.where[0] if one.where else None,
        evidence={
            "optimizer_steps": one.steps,
            "steps_until_zero": one.zero_since,
            "share": _wasted(one),
            "scheduler": one.scheduler,
            "scheduler_steps_per_step": one.scheduler_rate,
            "seen_on_rank": rank,
        },
        change_mind="The rest of the run is meant to change nothing, as one that only gathers statistics.",
        advice="Give the scheduler as many steps as it makes. With Accelerate it steps once for each rank: "
        "count the batches of the loader before accelerator.prepare(), times the epochs, or use "
        "Accelerator(split_batches=True), or step_scheduler_with_optimizer=False."
        if for_each_rank or rate > 1.0
        else "Give the scheduler the number of optimizer steps of the whole run: batches of a rank times epochs, over "
        "the passes that accumulate.",
    )


CHECK = Check(("schedule_ended",), _look, rests_on="records")
