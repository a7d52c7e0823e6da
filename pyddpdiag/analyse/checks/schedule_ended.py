"""The learning rate is 0 before the end of the training, or its schedule ends long before that, or long after."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import MATTERS_SHARE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.training import Stepped, Training
from pyddpdiag.model.words import percent

_COUNT = (
    "batches of a rank (len(loader) of the loader with the DistributedSampler) times epochs, over the passes that "
    "accumulate."
)


def _look(view: RunView) -> Iterator[Finding]:
    found = [
        (rank, one)
        for rank, sidecar in sorted(view.sidecars.items())
        for one in sidecar.training.stepped
        if one.module is not None
        and _wasted(one) >= MATTERS_SHARE
        # Another one may train the rest of the module.
        and all(_ended(each) for each in sidecar.training.stepped if each.module == one.module)
    ]
    if found:
        yield _of(view, *max(found, key=lambda each: _wasted(each[1])))
    elif all(rank.closed and not rank.ended_by for rank in view.ranks):
        yield from _unfinished(view)


def _ended(one: Stepped) -> int | None:
    """After how many steps its schedule had ended; None: it had not.

    A cosine that goes on beyond its end may be meant; one that makes several steps for each of the optimizer's is not.
    """
    return one.zero_since or (one.planned_since if _rate(one) > 1 else None)


def _rate(one: Stepped) -> float:
    return round(one.scheduler_rate or 0.0, 2)


def _wasted(one: Stepped) -> float:
    """The share of its steps that it made after the end of its schedule."""
    ended = _ended(one)
    return (one.steps - ended) / one.steps if ended and one.steps else 0.0


def _of(view: RunView, rank: int, one: Stepped) -> Finding:
    rate, wasted = _rate(one), _wasted(one)
    of_ranks = one.scheduler and view.run.world_size > 1 and rate == view.run.world_size
    several = ""
    if one.scheduler and rate not in (0.0, 1.0):
        several = f". {one.scheduler} makes {rate:g} steps for each of the optimizer's"
        several += ", one for each rank" if of_ranks else ""
    after = f"after step {_ended(one)} of {one.steps} of {one.optimizer}: {percent(wasted)} of them"
    return _finding(
        rank,
        one,
        f"the learning rate is 0 {after} change nothing{several}."
        if one.zero_since
        else f"the learning rate's schedule, made for {one.planned} steps, has ended {after} come after it{several}.",
        "The rest of the run is meant to change nothing, or to train at the rate of the schedule's end.",
        "Give the scheduler as many steps as it makes. With Accelerate it steps once for each rank: "
        "count the batches of the loader before accelerator.prepare(), times the epochs, or use "
        "Accelerator(split_batches=True), or step_scheduler_with_optimizer=False."
        if rate > 1.0
        else f"Give the scheduler the number of optimizer steps of the whole run: {_COUNT}",
        error=bool(of_ranks),
        steps_until_end=_ended(one),
        share=wasted,
    )


def _finding(
    rank: int,
    one: Stepped,
    message: str,
    mind: str,
    advice: str,
    *,
    error: bool = False,
    sure: bool = True,
    **evidence: float | None,
) -> Finding:
    return Finding(
        kind="schedule_ended",
        severity="error" if error else "warning",
        message=message,
        confidence="high" if sure else "medium",
        cost_ms=None,  # it costs no time: the model learns less
        where=one.where[0] if one.where else None,
        evidence={
            "optimizer_steps": one.steps,
            "scheduler": one.scheduler,
            "scheduler_steps_per_step": one.scheduler_rate,
            "scheduler_made_for": one.planned,
            "seen_on_rank": rank,
            **evidence,
        },
        change_mind=mind,
        advice=advice,
    )


def _unfinished(view: RunView) -> Iterator[Finding]:
    """A schedule for the steps of all ranks together, of which each made its part.

    A run that stops early for another reason has made another part of it, as a rule: the number of batches is rounded
    once for each epoch, by less than one of a rank's, and of all steps at which a run may stop, no more than
    `MATTERS_SHARE` are that near to this one. But of two ranks, half of the epochs is the same: it is never sure.
    """
    ranks = view.run.world_size
    for rank, sidecar in sorted(view.sidecars.items()):
        near = 1 + _epochs(sidecar.training)
        for one in sidecar.training.stepped if ranks > 1 else ():
            made = one.scheduled + (one.scheduler_rate or 0.0)
            if one.planned is None or 2 * near > MATTERS_SHARE * one.planned:
                continue
            if abs(made - one.planned / ranks) <= near:
                yield _finding(
                    rank,
                    one,
                    f"the training ends in the middle of the learning rate's schedule: {one.scheduler} is made for "
                    f"{one.planned} steps, as many as all {ranks} ranks make together, and each rank made {made:.0f}.",
                    "The run was to stop there, early or to go on from a checkpoint.",
                    f"Give the scheduler the steps that each rank makes: {_COUNT}",
                    sure=False,
                    scheduler_steps=made,
                )
                return


def _epochs(training: Training) -> int:
    return max((one.epochs for one in training.loaded), default=0)


CHECK = Check(("schedule_ended",), _look, rests_on="records")
