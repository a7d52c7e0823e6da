"""Some rank is always late, but not always the same one; or most ranks have more to do than some."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.batches import SAME_SIZES, uneven_sizes
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.step_matrix import beyond_mean, column_medians, extra_ms, median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import milliseconds, ranks, verb


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    rows = ~np.isnan(steps.own).any(axis=1)
    if len(steps.ranks) < 2 or np.count_nonzero(rows) < bounds.LEAST_STEPS or not steps.can_judge:
        return
    work = _work(view)
    spreads, saved = _spreads(work), _saved(work)
    spread = sure_median(spreads)
    own = steps.own[rows]
    if not view.late_ranks:
        yield from _early(view, own - np.nan_to_num(view.usage.run_delay[rows]))
    lateness = {"the others": extra_ms(_without_waits(own, view.usage.run_delay[rows])).max(axis=1)}
    known = not view.spins and saved >= bounds.LARGE_SHARE and median(spreads) >= bounds.WORK_SHARE
    if known or spread >= bounds.WORK_SHARE:
        # Spread evenly, the same work would be done in the mean time.
        lateness["the ranks do on average"] = beyond_mean(own - column_medians(own))
    found = [(than, worst) for than, worst in lateness.items() if _matters(worst, steps.wall_ms, known)]
    if not found:
        return
    than, worst = found[0]
    typical = median(worst)
    # A rank that is always late explains that some rank is.
    if any(late.confidence != "low" or 2 * late.extra_ms >= typical for late in view.late_ranks):
        return
    sizes = uneven_sizes(view.sidecars)
    yield Finding(
        kind="uneven_ranks",
        severity="warning",
        message=f"in a typical step the slowest rank needs {milliseconds(typical)} more than {than}, but it is "
        "not always the same one"
        + (f": batches hold {sizes[0]:,} to {sizes[1]:,} values." if sizes else "."),
        # Other load on the machine looks the same, except that it takes no processor time of the ranks'.
        confidence="medium"
        if sizes or (spread >= bounds.LARGE_SHARE and saved >= bounds.NEARLY_ALL * spread and not view.spins)
        else "low",
        cost_ms=typical,
        evidence={
            "extra_ms": typical,
            "spread_of_work": spread or None,
            "steps": len(worst),
            "step_ms": steps.wall_ms,
        },
        change_mind="One rank turns out slower over a longer run.",
        advice=SAME_SIZES
        if sizes
        else "Inputs of very different length, or more busy threads than cores, do this.",
    )


def _early(view: RunView, own: Float64) -> Iterator[Finding]:
    """Where more ranks are late than can be named, the others are early: their lower median says nothing.

    `own`: without what the ranks wait for a core.
    """
    steps = view.judged
    typical = np.median(own, axis=0)
    usual = float(np.sort(typical)[(len(typical) - 1) // 2])
    early = [
        rank
        for rank, mine in zip(steps.ranks, typical, strict=True)
        if usual - mine > bounds.LARGE_SHARE * steps.wall_ms
    ]
    more = beyond_mean(own)
    if not early or not _matters(more, steps.wall_ms):
        return
    less = usual - float(np.median([typical[steps.place_of[rank]] for rank in early]))
    yield Finding(
        kind="uneven_ranks",
        severity="warning",
        message=f"{ranks(early)} {verb(early, 'needs', 'need')} {milliseconds(less)} less than the others for "
        f"{verb(early, 'its', 'their')} own part of a step of {milliseconds(steps.wall_ms)}, and "
        f"{verb(early, 'waits', 'wait')} for them.",
        confidence="medium" if less >= bounds.SURELY_EARLY * steps.wall_ms else "low",
        cost_ms=median(more),
        evidence={
            "less_ms": less,
            "early_ranks": len(early),
            "steps": len(own),
            "step_ms": steps.wall_ms,
        },
        change_mind="The others have other work beside it on purpose.",
        advice="Give all ranks as much to do: inputs of equal size, the same work beside the training, equal machines.",
    )


def _without_waits(own: Float64, delay: Float64) -> Float64:
    """Own times without what other load on the machine takes from a rank; where that is not known, all."""
    known = ~np.isnan(delay).any(axis=1)
    return own if np.count_nonzero(known) < bounds.LEAST_STEPS else np.asarray((own - delay)[known])


def _matters(worst: Float64, step_ms: float, known: bool = False) -> bool:
    """`known`: something else shows that the ranks are late by turns, and the question is only by how much."""
    share = bounds.HEALTHY_SHARE if len(worst) >= bounds.MANY_STEPS else bounds.LARGE_SHARE
    return (median(worst) if known else sure_median(worst)) > max(bounds.LEAST_MS, share * step_ms)


def _spreads(cpu: Float64) -> Float64:
    """The standard deviation of the ranks' processor times in each step, as a part of their mean; 0: not known.

    Without what is usual for each rank.
    """
    usual = median(cpu.ravel())
    if len(cpu) < bounds.MANY_STEPS or not usual > 0.0:
        return np.zeros(1)
    return np.asarray((cpu - column_medians(cpu)).std(axis=1, ddof=1) / usual)


def _saved(cpu: Float64) -> float:
    """By how much a rank's smallest steps need less of the processor than its usual one, as a part of that.

    0: not known.
    """
    if len(cpu) < bounds.MANY_STEPS:
        return 0.0
    usual = column_medians(cpu)
    return median((usual - np.quantile(cpu, 1 - bounds.NEARLY_ALL, axis=0)) / np.maximum(usual, 1e-9))


def _work(view: RunView) -> Float64:
    """The ranks' processor times, in the steps in which all are known."""
    cpu = view.usage.cpu
    return np.asarray(cpu[~np.isnan(cpu).any(axis=1)])


CHECK = Check(("uneven_ranks",), _look, per_group=True, rests_on="waits")
