"""Ranks wait for a processor core, because other programs or each other hold them.

A rank that is late for this reason is reported as `late_rank` with the cause `core`, and not here: it is one cause with
one culprit. Here are the ranks that wait without being later than the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.core_waits import core_waits
from pyddpdiag.analyse.settings import by_host, host_cores
from pyddpdiag.analyse.training import workers_of
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import count, milliseconds, percent, those, verb


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    found = core_waits(steps, view.usage, steps.ranks, [late.rank for late in view.late_ranks])
    waiting, cost = found.by_rank, found.cost_ms
    if not waiting:
        return
    worst = max(waiting.values())
    who = f"{those(tuple(waiting), len(steps.ranks))} {verb(tuple(waiting), 'waits', 'wait')}"
    at = [steps.place_of[rank] for rank in waiting]
    foreign = float(np.nansum(view.foreign_waits[:, at]) / np.nansum(view.usage.run_delay[:, at]))
    taken, mind, advice = _why(view, at, foreign)
    yield Finding(
        kind="core_contention",
        severity="warning",
        message=f"{who} for a processor core: up to {milliseconds(worst)} of a step of "
        f"{milliseconds(steps.wall_ms)}, and {percent(cost / steps.wall_ms)} of a typical step is lost to it{taken}.",
        # A measured fact, and yet of the machine: whether it belongs to the job is not known.
        confidence="low",
        rank=next(iter(waiting)) if len(waiting) == 1 else None,
        cost_ms=cost,
        evidence={
            "core_wait_ms": worst,
            "by_other_programs_at_most": foreign,
            "ranks": len(waiting),
            "step_ms": steps.wall_ms,
            "steps": steps.steps,
        },
        change_mind=f"The step takes as long {mind}.",
        advice=advice,
    )


def _why(view: RunView, places: Sequence[int], foreign: float) -> tuple[str, str, str]:
    """Who takes the cores, as far as that is known; the change that would disprove it; what to do.

    `foreign`: the part of the waits that other programs may have caused.
    """
    if foreign < MOST:
        fewer = "Start fewer ranks on the machine, or give it" if len(places) > 1 else "Give the machine"
        advice = f"{fewer} more cores."
        return f"; {_taken_by(view, places)}", "with more cores", advice
    if workers := _workers(view, places):
        advice = (
            f"Give the loaders fewer workers ({view.advice.workers('...')}), their samples less to compute, or the "
            "machine more cores."
        )
        said = f"the loaders' {count(workers, 'worker')} {'takes' if workers == 1 else 'take'} cores, too"
        return f"; {said}", "with fewer workers", advice
    advice = (
        "Other programs, or more busy threads than cores, take the cores: look at the machine's load (top), "
        f"{'start fewer ranks on it, ' if len(places) > 1 else ''}or set OMP_NUM_THREADS to the cores per rank."
    )
    return "", "without other load", advice


def _workers(view: RunView, places: Sequence[int]) -> int:
    """How many processes make batches on the hosts that have fewer cores than ranks and these together."""
    found = 0
    for members in by_host(view.sidecars, [view.judged.ranks[place] for place in places]).values():
        here = workers_of(view.sidecars, members)
        found += here if len(members) + here > host_cores(view.sidecars, members) else 0
    return found


def _taken_by(view: RunView, places: Sequence[int]) -> str:
    """Whose work takes the cores, where it is mostly the ranks' own."""
    hosts = by_host(view.sidecars, [view.judged.ranks[place] for place in places])
    if any(len(ranks) > host_cores(view.sidecars, ranks) for ranks in hosts.values()):
        return "there are fewer cores than ranks"
    return "other threads of the ranks take the cores"


CHECK = Check(("core_contention",), _look, per_group=True, rests_on="own times")
