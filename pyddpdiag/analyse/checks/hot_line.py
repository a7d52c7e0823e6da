"""A line of the script takes a part of each step, and is no part of a training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import confidence, severity
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.core_waits import saved_ms
from pyddpdiag.analyse.hot_lines import HotLine, Part
from pyddpdiag.analyse.step_matrix import step_walls
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import percent, those

BEYOND: Final[dict[Part, str]] = {
    "outside": "that is outside forward, backward, optimizer, data and communication",
    "alone": "that is in forward or backward, and no other rank is ever there",
    "backward": "that is code of the script in backward: a hook, or an autograd function",
    "own optimizer": "that is in the script's own optimizer",
    "optimizer": "that is the optimizer, which takes longer than forward and backward",
}
# On a CPU foreach=True is slower than none.
FASTER: Final = (
    ": give the optimizer fused=True (Adam, AdamW, SGD, Adagrad), and an embedding of whose rows a batch needs few "
    "sparse=True and torch.optim.SparseAdam."
)
_NO_OPERATIONS: Final = ("torch.serialization.", "torch.nn.")


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    for found in view.hot_lines:
        step_ms = float(np.nanmean(step_walls(steps)))
        cost_ms = _cost_ms(view, found, step_ms)
        surely_ms = cost_ms * found.share.at_least / found.share.share
        everyone = len(found.ranks) == len(steps.ranks)
        yield Finding(
            kind="hot_line",
            severity=severity(surely_ms, step_ms)
            if surely_ms > _usual_ms(view, found, surely_ms)
            else "note",
            message=f"{percent(found.share.share)} of each step{_when(found)} goes by {_place(found)} on "
            f"{those(found.ranks, len(steps.ranks))}; {_beyond(found)}.",
            confidence=confidence(steps.steps),
            rank=found.ranks[0] if len(found.ranks) == 1 and not everyone else None,
            since_step=found.since_step,
            until_step=found.until_step,
            cost_ms=cost_ms,
            where=str(found.where.line),
            evidence={
                "share": found.share.share,
                "share_at_least": found.share.at_least,
                "step_ms": step_ms,
                "ranks": len(found.ranks),
                "called_at": str(found.statement),
                "outside_passes": int(found.part not in ("alone", "backward")),
                **found.where.facts,
            },
            change_mind="The training needs what is done there, in every step.",
            advice=found.where.advice(FASTER if found.part == "optimizer" else _instead(found.where.call)),
        )


def _cost_ms(view: RunView, found: HotLine, step_ms: float) -> float:
    """How much earlier the last rank would be ready without it."""
    own = view.judged.own[~np.isnan(view.judged.own).any(axis=1)]
    if not len(own):
        return 0.0
    spent = np.array([found.of_step.get(rank, 0.0) * step_ms for rank in view.judged.ranks])
    return float(saved_ms(own, np.minimum(own, spent)).mean())


def _usual_ms(view: RunView, found: HotLine, surely_ms: float) -> float:
    """What of it belongs there."""
    if found.part == "backward":
        return _span_ms(view, "backward") - surely_ms  # the rest of backward
    # Any optimizer takes some of a step; most take less than backward does.
    passes = {"own optimizer": ("backward",), "optimizer": ("forward", "backward")}.get(found.part, ())
    return sum(_span_ms(view, name) for name in passes)


def _span_ms(view: RunView, name: str) -> float:
    rows = np.isin(view.cube.step, view.judged.step)
    spent = view.cube.spans[name][rows]
    return float(np.nanmean(spent)) if np.isfinite(spent).any() else 0.0


def _instead(call: str) -> str:
    """What to do about such a call."""
    if call == "time.sleep":
        return ": leave it out, or sleep less often."
    # An operation on tensors: torch's, one in place, or none that has a name.
    tensors = call.startswith("torch.") and not call.startswith(_NO_OPERATIONS) and "_foreach_" not in call
    tensors = tensors or not call or call.endswith("_")
    many = "for many tensors at once (torch._foreach_*), " if tensors else ""
    return f": do it less often, {many}or in a thread or process of its own."


def _place(found: HotLine) -> str:
    where = found.where
    at = f"in {where.line.function}, mostly at {where}" if where.whole_function else f"at {where}"
    return at if found.statement == where.line else f"{at}, called at {found.statement},"


def _when(found: HotLine) -> str:
    since, until = found.since_step, found.until_step
    if since is None:
        return "" if until is None else f" up to step {until}"
    return f" from step {since} on" if until is None else f" from step {since} to step {until}"


def _beyond(found: HotLine) -> str:
    return BEYOND[found.part]


CHECK = Check(("hot_line",), _look, per_group=True, rests_on="own times")
