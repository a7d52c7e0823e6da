"""One rank alone makes the others wait: between steps (an evaluation, a checkpoint), or now and then in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.chance import period
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.checks.late_rank import OTHER_THREADS
from pyddpdiag.analyse.checks.pause import LESS_GARBAGE
from pyddpdiag.analyse.episodes import Episodes, episodes
from pyddpdiag.analyse.life import TAIL
from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.meetings import Alone
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Confidence, Finding
from pyddpdiag.model.words import milliseconds, percent, times


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


CHECKS = tuple(
    Check((kind,), look, per_group=True, rests_on="own times")
    for kind, look in (("rank_alone", _alone), ("episodic_rank", _now_and_then))
)
