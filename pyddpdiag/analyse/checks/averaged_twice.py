"""The script averages the gradients by hand though DDP has averaged them."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import TWICE
from pyddpdiag.analyse.calls.recurring import Recurring
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.averaged_again import AveragedAgain
from pyddpdiag.model.words import count, milliseconds, percent, size


def _look(view: RunView) -> Iterator[Finding]:
    seen = {
        rank: max(one.training.averaged_again.values(), key=lambda each: each.times)
        for rank, one in view.sidecars.items()
        if one.training.averaged_again
    }
    if seen and (again := min(seen.values(), key=lambda one: one.times)).times >= TWICE:
        yield _of(view, again, len(seen))


def _of(view: RunView, again: AveragedAgain, of_ranks: int) -> Finding:
    steps = view.judged
    found = _cost(view, again)
    cost = found.typical_ms * min(1.0, again.bytes / max(found.bytes, 1)) if found is not None else None
    costs = (
        f": {milliseconds(cost)} of a step of {milliseconds(steps.wall_ms)} ({percent(cost / steps.wall_ms)})"
        if cost is not None and steps.wall_ms > 0
        else ""
    )
    at = f" at {again.where}" if again.where else ""
    sums = " Unless the script divides the sums, they are too large." if again.op == "SUM" else ""
    return Finding(
        kind="averaged_twice",
        severity="warning",
        message=f"the script reduces the gradients of all parameters{at}, {count(again.calls, 'all-reduce')} of "
        f"{size(again.bytes)} a step, and DistributedDataParallel has averaged them in backward already{costs}. Seen "
        f"in {again.times} of {count(again.looks, 'step')} that were looked at.{sums}",
        confidence="high",
        where=again.where or None,
        cost_ms=cost,
        evidence={
            "calls_per_step": again.calls,
            "bytes": again.bytes,
            "steps_seen": again.times,
            "steps_looked_at": again.looks,
            "ranks": of_ranks,
            "cost_ms": cost,
            "step_ms": steps.wall_ms,
        },
        change_mind="The ranks' gradients differ after backward: something changed them on each rank in between.",
        advice="Leave these all-reduces out: after loss.backward() the gradients are the averages of all ranks. What "
        "averages them by hand is for a model that DistributedDataParallel does not wrap.",
    )


def _cost(view: RunView, again: AveragedAgain) -> Recurring | None:
    """The calls among which they are; None: they do not come back in each of the judged steps."""
    if not view.judged.can_judge:
        return None
    found = view.calls_in_steps.find("gloo:all_reduce", beside=False)
    return max(found, key=lambda one: one.bytes, default=None)


CHECK = Check(("averaged_twice",), _look, per_group=True, rests_on="waits")
