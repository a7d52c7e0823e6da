"""Gradients that are not finite: who made them, and whether a step was made with them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.fingerprints import WatchedBuckets
from pyddpdiag.analyse.grouped import Int64
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.words import count, ranks


def _look(view: RunView) -> Iterator[Finding]:
    """The rank whose gradient was not finite first; the others get it with the next step's weights."""
    watched = view.watched
    bad = np.flatnonzero(watched.non_finite > 0)
    if not len(bad):
        return
    step = int(watched.step[bad].min())
    first = bad[watched.step[bad] == step]
    blamed = sorted(set(watched.rank[first].tolist()))
    clean = _last_looked_at(watched, step)
    # The step before was seen, and no rank had any: these ranks made them themselves. So did they if some
    # rank's is finite now: it would have got them with the weights.
    finite = set(watched.rank[watched.step == step].tolist()) - set(blamed)
    # A rank whose records are not here may have had them first.
    seen_before = clean == step - 1 and view.run.is_whole
    own = seen_before or bool(finite) or step == 0 or view.run.world_size == 1
    mine = int(first[watched.rank[first] == blamed[0]][0])
    values = int(watched.non_finite[first[watched.rank[first] == blamed[0]]].sum())
    parameter = view.names.parameter(int(watched.module[mine]), int(watched.parameter[mine]))
    where = f", first in '{parameter}'" if parameter else ""
    if own:
        message = (
            f"{ranks(blamed)} put gradients that are not finite into step "
            f"{step} (rank {blamed[0]}: {count(values, 'value')}{where}); the averages are not finite either."
        )
        advice = "Look at that rank's batch and loss in this step."
        if len(blamed) > 1:
            advice = "More than one rank makes them by itself: look at the loss and the learning rate."
        again = _finite_again(watched, bad)
        if again is not None:
            yield _left_out(view, blamed, np.unique(watched.step[bad]), again)
            return
    else:
        unread = any(trace.older for trace in view.run.ranks)
        if clean is not None:
            since = f"in step {clean} none had any"
        else:
            since = "records of earlier steps were not read" if unread else "no earlier step was watched"
        message = (
            f"gradients are not finite on {ranks(blamed)} in step {step}: which rank had them first is unknown "
            f"({since}, and the average spreads them to all)."
        )
        advice = (
            f"{view.advice.recorder('statistics_interval=1')} watches every pass and names the rank the next time; "
            'sentinel="raise" stops the run there.'
        )
        if unread and clean is None:
            advice = "pyddpdiag report --memory 0 reads all records."
    yield Finding(
        kind="non_finite_gradient",
        severity="error",
        message=message,
        confidence="certain",
        rank=blamed[0] if own and len(blamed) == 1 else None,
        bucket=view.names.bucket(int(watched.reference[mine])),
        parameter=parameter,
        since_step=step,
        evidence={
            "step": step,
            "values": values,
            "ranks": len(blamed),
            "ranks_finite": len(finite),
            "last_finite_step": clean,
        },
        change_mind="A gradient scaler makes infinities on purpose while it looks for its scale, and skips the step.",
        advice=advice,
    )


def _finite_again(watched: WatchedBuckets, bad: Int64) -> int | None:
    """The step from which on no rank has any more; None: not known of each.

    An optimizer that steps with such an average spoils the weights, and they all gradients after that.
    """
    later = watched.step > watched.step[bad].max()
    if not np.isin(watched.rank, watched.rank[later]).all():
        return None
    return int(watched.step[later].min())


def _left_out(view: RunView, blamed: list[int], steps: Int64, again: int) -> Finding:
    more = f" and {len(steps) - 1} more" if len(steps) > 1 else ""
    return Finding(
        kind="non_finite_gradient",
        severity="note",
        message=f"{ranks(blamed)} put gradients that are not finite into step {steps[0]}{more}, which the script left "
        f"out, as a gradient scaler does: from step {again} on all are finite.",
        confidence="high",
        rank=culprit(blamed),
        since_step=int(steps[0]),
        until_step=int(steps[-1]),
        evidence={"step": int(steps[0]), "steps": len(steps), "ranks": len(blamed), "finite_from": again},
        change_mind="The script steps with what it puts in their place, or what they spoiled is not used after that, "
        "as a row of an embedding.",
        advice="Nothing to do where a gradient scaler looks for its scale. Else look at the batches and losses of "
        "these steps.",
    )


def _last_looked_at(watched: WatchedBuckets, before: int) -> int | None:
    """The last step before that one in which somebody looked on every rank; None: there is none."""
    earlier = watched.step < before
    ranks, steps = watched.rank[earlier], watched.step[earlier]
    by_rank = [set(steps[ranks == rank].tolist()) for rank in np.unique(watched.rank)]
    return max(set.intersection(*by_rank), default=None) if by_rank else None


CHECK = Check(("non_finite_gradient",), _look, rests_on="records")
