"""What time that somebody needs more is spent for: the one place that tells the parts of own time apart.

The same for one rank beside the others and for all ranks beside the rest of the run: each millisecond is under one
part, and the largest part is the cause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_STEPS, SHARED_TIMES
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.findings import Cause
from pyddpdiag.model.words import percent


@dataclass(frozen=True)
class ExtraTime:
    """Parts of the time that somebody needs more, each as a share of it; None: not known.

    Attributes:
        data: waiting for data.
        device: its accelerator still computes when its host is done.
        cpu: the thread that runs backward is on a core.
        core: it waits for one.
        threads: what the other threads of its process compute more.
        disk: it waits for a disk, as far as looks at it and its page faults tell.
        at_a_line: most of the time goes by at a line where nobody else is. Who waits for a core there does so for what
            it does there: other programs make nobody run another line.
        waits_per_cpu: how long somebody waits for a core here for each ms of computing (`waits_per_cpu`).
        cpu_times: the processor time over what is usual; None: not known.
    """

    data: float | None = None
    device: float | None = None
    cpu: float | None = None
    core: float | None = None
    threads: float | None = None
    disk: float | None = None
    at_a_line: bool = False
    waits_per_cpu: float = 0.0
    cpu_times: float | None = None

    @property
    def computing(self) -> float:
        """What it computes more, with the waits for a core that so much computing brings.

        None of it is its own where it waits for even longer than it computes beyond that: a program on its core is in
        its caches as well, and makes the same work take longer.
        """
        on_core, waits = max(0.0, self.cpu or 0.0), max(0.0, self.core or 0.0)
        brought = min(waits, self.waits_per_cpu * on_core)
        is_shared = self.cpu_times is not None and self.cpu_times <= SHARED_TIMES
        return 0.0 if is_shared and waits - brought > on_core else on_core + brought

    @property
    def waiting(self) -> float:
        """What it waits more for a core beyond that."""
        return max(0.0, (self.core or 0.0) + max(0.0, self.cpu or 0.0) - self.computing)

    @property
    def cause(self) -> Cause | None:
        """The largest part; None: it may be another one, which is not known."""
        data, device, disk = (max(0.0, each or 0.0) for each in (self.data, self.device, self.disk))
        # A loader without workers computes while the loop waits for it: that is of its data.
        computing = min(self.computing, max(0.0, 1.0 - data))
        left, waiting = max(0.0, 1.0 - data - device - computing - self.waiting), self.waiting
        # A thread that waits for the others of its process sleeps, or waits for the core that they are on.
        threads = min(max(0.0, self.threads or 0.0), left + waiting)
        threads = threads if threads > disk else 0.0
        left, waiting = left - min(threads, left), waiting - max(0.0, threads - left)
        on_disk = 2 * disk >= left
        computes = computing + threads
        if self.at_a_line:
            computes, left = (computes + waiting, left) if computes > left else (computes, left + waiting)
            waiting = 0.0
        # After each wait for a disk, a rank waits for a core as well.
        asleep = max(disk, left)
        parts: dict[Cause | None, float] = {
            "data": data,
            "device": device,
            "compute": computes,
            "core": waiting,
            "disk" if on_disk else "blocked": asleep,
        }
        found = max(parts, key=lambda each: parts[each])
        if self.cpu is None and found not in ("data", "device"):
            return "disk" if 2 * disk >= 1.0 else None
        # Without the run-queue delay, a thread that waits for a core and one that sleeps look the same.
        return None if self.core is None and found == "blocked" else found


def waits_per_cpu(mine: tuple[float, float], usual: tuple[float, float]) -> float:
    """How long who computes waits for a core for each ms of it, whoever else is on the machine.

    At least as long as is usual; as long as it does itself, if it computes more than other programs in the same caches
    can make of the usual work.

    Args:
        mine: processor time and waits for a core of whom this is about; any unit.
    """
    of = mine if mine[0] > SHARED_TIMES * usual[0] else usual
    return max(0.0, of[1]) / of[0] if of[0] > 0.0 else 0.0


def share(more: Float64, extra: Float64) -> float | None:
    """How much of what is extra in these steps is what there is more of a part; None: too few are known.

    Args:
        more: of the part, step by step, in ms; NaN = not known.
    """
    known = ~np.isnan(more)
    if np.count_nonzero(known) < LEAST_STEPS or not extra[known].sum() > 0.0:
        return None
    return float(more[known].sum() / extra[known].sum())


def part(some_ms: float, extra_ms: float) -> float:
    """What share of the extra time that is; 0 where there is none: who computes more need not be later."""
    return some_ms / extra_ms if extra_ms > 0.0 else 0.0


def stretch(usual_ms: float, extra_ms: float, *shares: float | None) -> float:
    """How many times as long a rank takes for anything, if all that its processor makes longer is longer alike.

    Waiting for a core comes in proportion to computing, and so does what a slower processor or larger inputs take more;
    sleeping and waiting for a disk come at one line.

    Args:
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
    """
    if cpu_share is None:
        return ""
    one = "s" if who == "it" else ""
    core = percent(max(0.0, core_share or 0.0))
    waits = "" if core == percent(0.0) else f", and wait{one} for a processor core for {core}"
    return f"{who} compute{one} for {percent(min(1.0, cpu_share))} of {more}{waits}"
