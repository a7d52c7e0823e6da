"""The gradients themselves: not finite, or their sums differ between ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.fingerprints import WatchedBuckets
from pyddpdiag.analyse.settings import odd_ones
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.words import count, ranks, verb


def _look(view: RunView) -> Iterator[Finding]:
    yield from _non_finite(view)
    yield from _different_sums(view)


def _non_finite(view: RunView) -> Iterator[Finding]:
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


def _last_looked_at(watched: WatchedBuckets, before: int) -> int | None:
    """The last step before that one in which somebody looked on every rank; None: there is none."""
    earlier = watched.step < before
    ranks, steps = watched.rank[earlier], watched.step[earlier]
    by_rank = [set(steps[ranks == rank].tolist()) for rank in np.unique(watched.rank)]
    return max(set.intersection(*by_rank), default=None) if by_rank else None


def _different_sums(view: RunView) -> Iterator[Finding]:
    """All-reduces after which the ranks hold different bits."""
    watched = view.watched
    sums: dict[tuple[int, int], dict[int, int]] = {}
    spoiled: set[tuple[int, int]] = set()
    about: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(watched.checksum != 0).tolist():
        key = int(watched.group[row]), int(watched.sequence[row])
        sums.setdefault(key, {})[int(watched.rank[row])] = int(watched.checksum[row])
        about.setdefault(key, row)
        if watched.non_finite[row]:
            # The bits of a resulting NaN may depend on the order of the additions.
            spoiled.add(key)
    different = [key for key, values in sums.items() if len(set(values.values())) > 1 and key not in spoiled]
    if not different:
        return
    key = min(different, key=lambda key: (int(watched.step[about[key]]), key[1]))
    step = int(watched.step[about[key]])
    bucket = view.names.bucket(int(watched.reference[about[key]]))
    odd = odd_ones(sums[key])
    blame = f"; {ranks(odd)} {verb(odd, 'differs', 'differ')} from the rest" if odd else ""
    yield Finding(
        kind="different_sums",
        severity="error",
        message=f"after {count(len(different), 'all-reduce')} the ranks held different gradients, first in step "
        f"{step} (bucket {bucket}){blame}. Their models drift apart.",
        confidence="certain",
        rank=culprit(odd),
        bucket=bucket,
        since_step=step,
        evidence={"all_reduces": len(different), "compared": len(sums), "step": step, "sequence": key[1]},
        change_mind="The traces belong to different runs.",
        advice="A rank that skips an all-reduce, or calls another one of the same size, shifts all that follow. "
        + view.advice.recorder('sentinel="raise"')
        + " stops at the first such step and names it.",
    )


CHECK = Check(("non_finite_gradient", "different_sums"), _look, rests_on="records")
