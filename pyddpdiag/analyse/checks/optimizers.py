"""Optimizers that change nothing: their schedule is over, or they hold other weights than the module's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_STEPS, MATTERS_SHARE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.fingerprints import Compared
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.training import Stepped
from pyddpdiag.model.words import at, count, percent, times

_WRAPPED: Final = (
    "Make the optimizer from the parameters of the wrapped module, after the last change of the model: "
    "ddp = DistributedDataParallel(model); optimizer = torch.optim.SGD(ddp.parameters(), ...)."
)
_COUNT: Final = (
    "batches of a rank (len(loader) of the loader with the DistributedSampler) times epochs, over the passes that "
    "accumulate."
)


def _schedule(view: RunView) -> Iterator[Finding]:
    """The learning rate is 0, or its schedule has ended, before the end of the training."""
    found = [
        (_wasted(one), rank, one)
        for rank, sidecar in sorted(view.sidecars.items())
        for one in sidecar.training.stepped
        if one.module is not None
        and _wasted(one) >= MATTERS_SHARE
        # Another one may train the rest of the module.
        and all(_ended(each) for each in sidecar.training.stepped if each.module == one.module)
    ]
    if not found:
        if all(each.closed and not each.ended_by for each in view.ranks):
            yield from _unfinished(view)
        return
    wasted, rank, one = max(found, key=lambda each: each[0])
    rate, ended = _rate(one), _ended(one)
    of_ranks = bool(one.scheduler) and view.run.world_size > 1 and rate == view.run.world_size
    several = ""
    if one.scheduler and rate not in (0.0, 1.0):
        several = f". {one.scheduler} makes {rate:g} steps for each of the optimizer's"
        several += ", one for each rank" if of_ranks else ""
    after = f"after step {ended} of {one.steps} of {one.optimizer}: {percent(wasted)} of them"
    yield Finding(
        kind="schedule_ended",
        severity="error" if of_ranks else "warning",
        message=f"the learning rate is 0 {after} change nothing{several}."
        if one.zero_since
        else f"the learning rate's schedule, made for {one.planned} steps, has ended {after} come after it{several}.",
        confidence="high",
        where=one.line,
        evidence={
            "optimizer_steps": one.steps,
            "scheduler": one.scheduler,
            "scheduler_steps_per_step": one.scheduler_rate,
            "scheduler_made_for": one.planned,
            "seen_on_rank": rank,
            "steps_until_end": ended,
            "share": wasted,
        },
        change_mind="The rest of the run is meant to change nothing, or to train at the rate of the schedule's end.",
        advice="Give the scheduler as many steps as it makes. With Accelerate it steps once for each rank: "
        "count the batches of the loader before accelerator.prepare(), times the epochs, or use "
        "Accelerator(split_batches=True), or step_scheduler_with_optimizer=False."
        if rate > 1.0
        else f"Give the scheduler the number of optimizer steps of the whole run: {_COUNT}",
    )


def _unfinished(view: RunView) -> Iterator[Finding]:
    """A schedule for the steps of all ranks together, of which each made its part.

    A run that stops early for another reason has made another part of it, as a rule: the number of batches is rounded
    once for each epoch, by less than one of a rank's, and of all steps at which a run may stop, no more than
    `MATTERS_SHARE` are that near to this one. But of two ranks, half of the epochs is the same: it is never sure.
    """
    ranks = view.run.world_size
    for rank, sidecar in sorted(view.sidecars.items()):
        near = 1 + max((one.epochs for one in sidecar.training.loaded), default=0)
        for one in sidecar.training.stepped if ranks > 1 else ():
            made = one.scheduled + (one.scheduler_rate or 0.0)
            if one.planned is None or 2 * near > MATTERS_SHARE * one.planned:
                continue
            if abs(made - one.planned / ranks) <= near:
                yield Finding(
                    kind="schedule_ended",
                    severity="warning",
                    message="the training ends in the middle of the learning rate's schedule: "
                    f"{one.scheduler} is made for {one.planned} steps, as many as all {ranks} ranks make together, and "
                    f"each rank made {made:.0f}.",
                    confidence="medium",
                    where=one.line,
                    evidence={
                        "optimizer_steps": one.steps,
                        "scheduler": one.scheduler,
                        "scheduler_made_for": one.planned,
                        "scheduler_steps": made,
                        "seen_on_rank": rank,
                    },
                    change_mind="The run was to stop there, early or to go on from a checkpoint.",
                    advice=f"Give the scheduler the steps that each rank makes: {_COUNT}",
                )
                return


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


def _unchanged(view: RunView) -> Iterator[Finding]:
    stepped = [
        one
        for sidecar in view.sidecars.values()
        for one in sidecar.training.stepped
        if one.steps >= LEAST_STEPS
    ]
    for module in np.unique(view.weights.module).tolist() if stepped else ():
        seen = _constant(view.weights.of_modules([module]))
        if seen is not None:
            yield _of_module(view, module, *seen, stepped)


def _constant(weights: Compared) -> tuple[int, int, int] | None:
    """How many parameters were compared, and in which steps first and last; None: one changed, or nothing is known."""
    parameters = 0
    steps: list[int] = []
    for parameter in np.unique(weights.parameter).tolist():
        mine = weights.parameter == parameter
        if np.count_nonzero(mine) < 2:
            continue
        for bits in weights.bits[mine].T:
            if len(np.unique(bits[bits != 0])) > 1:
                return None
        parameters += 1
        steps += weights.step[mine].tolist()
    return (parameters, min(steps), max(steps)) if parameters else None


def _of_module(
    view: RunView, module: int, parameters: int, first: int, last: int, stepped: Sequence[Stepped]
) -> Finding:
    own = [one for one in stepped if one.module == module]
    one = max(own or stepped, key=lambda each: each.steps)
    known = view.names.modules.get(module)
    name = f"'{known.name}'" if known is not None else f"module {module}"
    zero = _gradients_of_zero(view, module)
    why, advice = _why_unchanged(one, own, zero)
    return Finding(
        kind="weights_unchanged",
        severity="error",
        message=f"the weights of {name} do not change: all of {count(parameters, 'parameter')} that were compared were "
        f"the same in step {first} and in step {last}, though {one.optimizer} stepped {times(one.steps)}"
        f"{at(one.line)}{why}.",
        confidence="high",
        since_step=first,
        where=one.line,
        evidence={
            "parameters": parameters,
            "last_step": last,
            "optimizer_steps": one.steps,
            "has_parameters": int(bool(own)),
            "looks": one.looks,
            "looks_without_gradients": one.idle,
            "steps_with_gradients_of_zero": zero,
        },
        change_mind="The module is trained only later than what was recorded, or something else than an optimizer of "
        "torch is about to change it.",
        advice=advice,
    )


def _gradients_of_zero(view: RunView, module: int) -> int:
    """In how many steps the gradients of a module were looked at, if all of them were 0; 0: they were not."""
    watched = view.watched
    mine = (watched.module == module) & (watched.reference != 0) & np.isfinite(watched.sum_squares)
    return 0 if watched.absolute_maximum[mine].any() else len(np.unique(watched.step[mine]))


def _why_unchanged(one: Stepped, own: Sequence[Stepped], zero: int) -> tuple[str, str]:
    if not own:
        return (
            ". None of the module's parameters is one of that optimizer's: it trains another model",
            _WRAPPED,
        )
    if one.zero_since == 0:
        return (
            ". Its learning rate was 0 all the time",
            "Give the optimizer a learning rate, or look at the scheduler that sets it.",
        )
    if one.idle == one.looks > 0:
        return (
            ". Its parameters had no gradient in any of the steps that were looked at",
            "Call optimizer.zero_grad() before the forward pass or after optimizer.step(), and not between "
            "loss.backward() and optimizer.step().",
        )
    if zero:
        return (
            f". All their gradients were 0, in each of {count(zero, 'step')} that were looked at",
            "The loss does not depend on the weights: look at what comes between them. A softmax over one output is 1 "
            "whatever that is (CrossEntropyLoss needs an output for each class), and nothing goes back through what is "
            "rounded, compared, clamped or multiplied by 0.",
        )
    return (
        "",
        "Print the norm of a gradient and the learning rate right before optimizer.step(). In 16 bits, updates much "
        "smaller than a weight are lost: keep the weights in float32.",
    )


CHECKS = (
    Check(("weights_unchanged",), _unchanged, rests_on="records"),
    Check(("schedule_ended",), _schedule, rests_on="records"),
)
