"""The ranks stand still while one of them works alone: it evaluates, writes a checkpoint, unpacks data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse.alone import Alone
from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.chance import period
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.episodes import episodes
from pyddpdiag.analyse.life import TAIL
from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import percent, times

PREPARE: Final = (
    "Prepare data (download, unpack, index) before the ranks are started, or let each host's first rank do its own "
    "host's part."
)
SHARE: Final = (
    "Share the work: evaluate on every rank with DistributedSampler(dataset, shuffle=False) and all-reduce the result; "
    "write checkpoints in a thread, of a copy of the state; or do it less often."
)


def _look(view: RunView) -> Iterator[Finding]:
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


CHECK = Check(("rank_alone",), _look, per_group=True, rests_on="own times")
