"""One rank is late now and then, always the same one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.chance import period
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.checks.late_rank import OTHER_THREADS
from pyddpdiag.analyse.checks.pause import LESS_GARBAGE
from pyddpdiag.analyse.episodes import Episodes, episodes
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Confidence, Finding
from pyddpdiag.model.words import milliseconds, percent


def _look(view: RunView) -> Iterator[Finding]:
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


CHECK = Check(("episodic_rank",), _look, per_group=True, rests_on="own times")
