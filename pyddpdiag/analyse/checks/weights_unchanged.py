"""A module's gradients are averaged and optimizers step, and its weights stay what they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_STEPS
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.weights import Compared
from pyddpdiag.model import Finding
from pyddpdiag.model.training import Stepped
from pyddpdiag.model.words import count, times

_WRAPPED: Final = (
    "Make the optimizer from the parameters of the wrapped module, after the last change of the model: "
    "ddp = DistributedDataParallel(model); optimizer = torch.optim.SGD(ddp.parameters(), ...)."
)


def _look(view: RunView) -> Iterator[Finding]:
    stepped = [
        one
        for sidecar in view.sidecars.values()
        for one in sidecar.training.stepped
        if one.steps >= LEAST_STEPS
    ]
    for module in np.unique(view.weights.module).tolist() if stepped else ():
        seen = _constant(view.weights.of_modules([module]))
        if seen is not None:
            yield _finding(view, module, *seen, stepped)


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


def _finding(
    view: RunView, module: int, parameters: int, first: int, last: int, stepped: Sequence[Stepped]
) -> Finding:
    own = [one for one in stepped if one.module == module]
    one = max(own or stepped, key=lambda each: each.steps)
    known = view.names.modules.get(module)
    name = f"'{known.name}'" if known is not None else f"module {module}"
    at = f" at {one.where[0]}" if one.where else ""
    why, advice = _why(one, own)
    return Finding(
        kind="weights_unchanged",
        severity="error",
        message=f"the weights of {name} do not change: all of {count(parameters, 'parameter')} that were compared were "
        f"the same in step {first} and in step {last}, though {one.optimizer} stepped {times(one.steps)}{at}{why}.",
        confidence="high",
        since_step=first,
        where=one.where[0] if one.where else None,
        evidence={
            "parameters": parameters,
            "last_step": last,
            "optimizer_steps": one.steps,
            "has_parameters": int(bool(own)),
            "looks": one.looks,
            "looks_without_gradients": one.idle,
        },
        change_mind="The module is trained only later than what was recorded, or something else than an optimizer of "
        "torch is about to change it.",
        advice=advice,
    )


def _why(one: Stepped, own: Sequence[Stepped]) -> tuple[str, str]:
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
    return (
        "",
        "Print the norm of a gradient and the learning rate right before optimizer.step(). In 16 bits, updates much "
        "smaller than a weight are lost: keep the weights in float32.",
    )


CHECK = Check(("weights_unchanged",), _look, rests_on="records")
