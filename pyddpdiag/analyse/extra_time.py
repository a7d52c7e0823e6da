"""What a rank's extra time is spent for: on a core, waiting for one, for other threads of its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.thresholds import LEAST_STEPS
from pyddpdiag.model.findings import Cause
from pyddpdiag.model.words import percent

CORE_SHARE: Final = 0.7
"""Share of the extra time in which it waits for a core. Busy code on a loaded machine reaches 0.4, other load 0.93."""

CPU_SHARE: Final = 0.5
"""Share of the extra time on a core. Busy code has at least 0.68, a rank that sleeps at most 0.06."""

MORE_TIMES: Final = 1.75
"""A rank that uses this many times the others' processor time computes more, however long it waits for a core for that.
Shared caches and cores make the same work take up to 1.5 times as long."""

More = Callable[[Float64], Float64]
"""How much more each rank has of something than what it is compared with; [steps, ranks]."""


def cause_of(cpu_share: float | None, core_share: float | None) -> Cause | None:
    """What extra time is spent for, by the parts of it on a core and waiting for one, as far as they are known."""
    if core_share is not None and core_share >= CORE_SHARE:
        return "core"
    if cpu_share is None:
        return None
    if cpu_share >= CPU_SHARE:
        return "compute"
    # Without the run-queue delay a waiting thread and a sleeping one look the same.
    return "blocked" if core_share is not None and cpu_share + core_share < CPU_SHARE else None


def explains(cpu_share: float | None, core_share: float | None) -> bool:
    """Whether processor time takes most of what is extra beside waiting for a core."""
    return cpu_share is not None and cpu_share >= CPU_SHARE * (1.0 - max(0.0, core_share or 0.0))


def stretch(usual_ms: float, extra_ms: float, *shares: float | None) -> float:
    """How many times as long a rank takes for anything, if all that its processor makes longer is longer alike.

    Waiting for a core comes in proportion to computing, and so does what a slower processor or larger inputs take more;
    sleeping and waiting for a disk come at one line.

    Args:
        usual_ms: what is usual, in ms.
        extra_ms: what it needs more.
        shares: parts of that on a core and waiting for one, as far as they are known.
    """
    part = min(1.0, sum(max(0.0, each or 0.0) for each in shares))
    return 1.0 + part * max(0.0, extra_ms) / usual_ms if usual_ms > 0.0 else 1.0


def computing(who: str, more: str, cpu_share: float | None, core_share: float | None) -> str:
    """In words: for how much of the extra time somebody computes, and how much passes until there is a core for that.

    Args:
        who: "it" or "they".
        more: what the extra time is called.
        cpu_share: the part on a core; None: not known, which gives no words.
        core_share: the part waiting for one; None: not known.
    """
    if cpu_share is None:
        return ""
    one = "s" if who == "it" else ""
    core = percent(max(0.0, core_share or 0.0))
    waits = "" if core == percent(0.0) else f", and wait{one} for a processor core for {core}"
    return f"{who} compute{one} for {percent(min(1.0, cpu_share))} of {more}{waits}"


def computes_much(more_of: More, cpu: Float64, place: int, threshold: float) -> bool:
    """Whether the processor time of a rank's thread alone makes it late, by a multiple of the others'."""
    cpu = cpu[~np.isnan(cpu).any(axis=1)]
    if len(cpu) < LEAST_STEPS:
        return False
    more = more_of(cpu)[:, place]
    return sure_median(more) > threshold and median(cpu[:, place]) >= MORE_TIMES * median(
        cpu[:, place] - more
    )


def other_threads(
    more_of: More, cpu: Float64, extra: Float64, place: int, threshold: float
) -> tuple[float, float] | None:
    """What the other threads of a rank's process compute, and those of the others' do, in ms.

    None: they do not take the time that the rank is late by, or that is not known.

    Args:
        more_of: how much more each rank has of something.
        cpu: processor time of each rank's process less that of its thread that runs backward.
        extra: by how much the rank is late in these steps.
        place: of the rank.
        threshold: from which it is late; ms.
    """
    known = ~np.isnan(cpu).any(axis=1)
    if np.count_nonzero(known) < LEAST_STEPS:
        return None
    more = more_of(cpu[known])[:, place]
    if sure_median(more) <= threshold or float(more.sum()) < CPU_SHARE * float(extra[known].sum()):
        return None
    mine = median(cpu[known][:, place])
    return mine, mine - median(more)


def mean_of(more_of: More, values: Float64, place: int) -> float | None:
    """How much more of these a rank has than the others in a step; None: too few are known."""
    known = ~np.isnan(values).any(axis=1)
    if np.count_nonzero(known) < LEAST_STEPS:
        return None
    return float(more_of(values[known])[:, place].mean())


def share_of(more_of: More, values: Float64, extra: Float64, place: int) -> float | None:
    """How much of a rank's extra time these values explain by what it has more of them; None: too few are known."""
    known = ~np.isnan(values).any(axis=1)
    if np.count_nonzero(known) < LEAST_STEPS:
        return None
    return float(more_of(values[known])[:, place].sum() / extra[known].sum())
