"""The others wait for one rank, which works alone or is late now and then, or for one or another by turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.batches import SAME_SIZES, uneven_sizes
from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.chance import period
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.checks.late_rank import OTHER_THREADS
from pyddpdiag.analyse.checks.pause import LESS_GARBAGE
from pyddpdiag.analyse.episodes import Episodes, episodes
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.life import TAIL
from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.meetings import Alone
from pyddpdiag.analyse.step_matrix import beyond_mean, column_medians, extra_ms, median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Confidence, Finding
from pyddpdiag.model.words import milliseconds, percent, ranks, times, verb


def _by_turns(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    rows = ~np.isnan(steps.own).any(axis=1)
    if len(steps.ranks) < 2 or np.count_nonzero(rows) < bounds.LEAST_STEPS or not steps.can_judge:
        return
    spreads, saved = _work(view)
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


def _work(view: RunView) -> tuple[Float64, float]:
    """The standard deviation of the ranks' processor times in each step, as a part of their mean, without what is usual
    for each rank; and by how much its smallest steps need less than is usual for a rank. 0: not known."""
    cpu = view.usage.cpu[~np.isnan(view.usage.cpu).any(axis=1)]
    if len(cpu) < bounds.MANY_STEPS or not np.median(cpu) > 0.0:
        return np.zeros(1), 0.0
    usual = column_medians(cpu)
    saved = (usual - np.quantile(cpu, 1 - bounds.NEARLY_ALL, axis=0)) / np.maximum(usual, 1e-9)
    return (cpu - usual).std(axis=1, ddof=1) / np.median(cpu), median(saved)


def _now_and_then(view: RunView) -> Iterator[Finding]:
    found = episodes(view.judged, view.usage)
    alone = view.alone
    # What a rank does alone between the steps is found as that (rank_alone).
    if found is not None and alone is not None and alone.rank == found.rank and alone.is_seen:
        return
    # A rank that is late in most steps, or in all of a stretch, is later in some of them.
    if found is None or any(
        late.rank == found.rank and (late.confidence != "low" or late.computes_for_a_while)
        for late in view.late_ranks
    ):
        return
    typical, rhythm = median(found.lead_ms), period(found.at)
    every = f", every {rhythm:.0f} steps," if rhythm else ""
    collector = found.collector_share is not None and found.collector_share >= MOST
    why = (
        f" ({percent(found.collector_share or 0.0)} of it in Python's garbage collector)" if collector else ""
    )
    beside = 0.0 if collector else _beside_ms(found, view)
    if beside >= MOST * typical:
        why = f", while other threads of its process computed ({milliseconds(beside)} more)"
    where = None if collector else view.lines.more_of(found.rank, found.at, float(found.lead_ms.sum()))
    change_mind = "Its inputs are longer then."
    if not found.core_waits_known:
        change_mind = (
            "Another program takes its processor core at those moments, or its inputs are longer then."
        )
    finding = Finding(
        kind="episodic_rank",
        severity="warning",
        message=f"rank {found.rank} is late now and then: in {len(found.at)} of {found.steps} steps{every} it needed "
        f"{milliseconds(typical)} more than usual{why}, and the others waited; {percent(found.share)} of the time was "
        "lost to it.",
        confidence="low" if found.few and not where else _confidence(found, view),
        rank=found.rank,
        since_step=int(found.at[0]),
        cost_ms=float(found.lead_ms.sum()) / found.steps,
        cost_s=float(found.lead_ms.sum()) / 1e3,
        evidence={
            "extra_ms": typical,
            "times": len(found.at),
            "every_steps": rhythm,
            "steps": found.steps,
            "share": found.share,
            "step_ms": view.judged.wall_ms,
            "collector_share": found.collector_share,
            "other_threads_ms": beside or None,
        },
        change_mind=change_mind,
        advice=LESS_GARBAGE
        if collector
        else OTHER_THREADS
        if beside >= MOST * typical
        else "Look for what this rank alone does now and then: logging, checkpoints, evaluation, its loader.",
    )
    otherwise = ": it does that now and then, and the others do not."
    yield with_line(finding, where, "what it needs more then", otherwise)


def _beside_ms(found: Episodes, view: RunView) -> float:
    """What the other threads of its process typically compute more in those steps than in others; ms."""
    place, then = view.judged.place_of[found.rank], np.isin(view.judged.step, found.at)
    beside = (view.usage.process_cpu - view.usage.cpu)[:, place]
    more = median(beside[then]) - median(beside[~then])
    return max(0.0, more) if np.isfinite(more) and not view.spins else 0.0


def _confidence(found: Episodes, view: RunView) -> Confidence:
    # Other load on the machine looks the same where nobody recorded which rank waited for a core.
    if not found.core_waits_known:
        return "low"
    if not found.by_chance:
        return "high"
    # Known is how long the thread that runs backward waits for a core, and not how long it waits for its helpers, which
    # wait for one.
    if any(found.rank in crowd.ranks for crowd in view.crowding):
        return "low"
    # Few steps, but each as late as no healthy rank is.
    return "medium" if median(found.lead_ms) >= view.judged.wall_ms else "low"


PREPARE: Final = (
    "Prepare data (download, unpack, index) before the ranks are started, or let each host's first rank do its own "
    "host's part."
)
SHARE: Final = (
    "Share the work: evaluate on every rank with DistributedSampler(dataset, shuffle=False) and all-reduce the result; "
    "write checkpoints in a thread, of a copy of the state; or do it less often."
)


def _alone(view: RunView) -> Iterator[Finding]:
    found = view.alone
    if found is None:
        return
    if not found.is_seen:
        episodic = episodes(view.judged, view.usage)
        if episodic is not None and episodic.rank == found.rank:
            return  # nothing shows that this is no part of a step
    inside = found.lead_ms[np.isin(found.at, view.judged.step)]
    steps = [int(step) for step in found.at if step != TAIL]
    where, line = _where(view, found), _set_up_line(view, found)
    rhythm = period(found.at[found.at != TAIL])
    every = f" (every {rhythm:.0f} steps)" if rhythm else ""
    at_start = len(found.at) == 1 and found.from_start
    finding = Finding(
        kind="rank_alone",
        severity="warning",
        message=f"the ranks stood still for {found.lost_s:.1f} of {found.run_s:.1f} s: rank {found.rank} works alone "
        f"{_when(found)}, {times(len(found.at))}{every}, and the others wait for it; {percent(found.share)} of the "
        "time goes by that way." + (f" There it mostly is at {line}." if line and not where else ""),
        confidence="high" if found.is_seen else "medium",
        rank=found.rank,
        since_step=steps[0] if steps else None,
        cost_ms=float(inside.sum()) / view.judged.steps if len(inside) else None,
        cost_s=found.lost_s,
        where=line or None,
        evidence={
            "lost_s": found.lost_s,
            "run_s": found.run_s,
            "share": found.share,
            "times": len(found.at),
            "every_steps": rhythm,
            "longest_s": float(found.lead_ms.max()) / 1e3,
            "others_in_collective": int(found.collective),
            "between_epochs": int(found.epochs),
        },
        change_mind="The other ranks need what it makes there, and could not make it themselves.",
        advice=PREPARE
        if at_start
        else SHARE
        if found.phase
        else f"{SHARE} {view.advice.phases()} tells what it is.",
    )
    yield with_line(finding, where, "what it does there", None if at_start else f". {SHARE}")


def _where(view: RunView, found: Alone) -> Where | None:
    """The line at which it mostly is there, and not in the other steps. What lies before or after all steps is in none
    of them."""
    inside = np.isin(found.at, view.judged.step)
    if not inside.any():
        return None
    usual = np.setdiff1d(view.judged.step, found.at)
    return view.lines.of([found.rank]).more_in(found.at[inside], usual, float(found.own_ms[inside].mean()))


def _set_up_line(view: RunView, found: Alone) -> str:
    """The line at which the rank mostly was before its first pass; empty: not known, or not it."""
    if not found.from_start or len(found.at) > 1:
        return ""
    most, best = MOST * 1e9 * found.lost_s, ""
    for name in ("before_group_line", "set_up_line", "after_module_line"):
        lines = {rank: sidecar.start_up_lines(name) for rank, sidecar in view.sidecars.items()}
        for line, spent in lines.pop(found.rank).items():
            # What each rank does there, such as to import, is not what this one does alone.
            more = spent - min((others.get(line, 0) for others in lines.values()), default=0)
            if more >= most:
                most, best = more, line
    return best


def _when(found: Alone) -> str:
    if found.epochs:
        return "between epochs"
    if len(found.at) == 1 and found.from_start:
        return "before the first step"
    if (found.at == TAIL).all():
        return "after the last step"
    return "between steps"


CHECKS = (
    Check(("rank_alone",), _alone, per_group=True, rests_on="own times"),
    Check(("episodic_rank",), _now_and_then, per_group=True, rests_on="own times"),
    Check(("uneven_ranks",), _by_turns, per_group=True, rests_on="waits"),
)
