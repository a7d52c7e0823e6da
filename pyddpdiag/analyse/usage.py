"""What each step cost the processor on each rank: time on a core, waiting for one, the collector's pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.trace.layout import Records, UsageValue
from pyddpdiag.trace.rows import Int64

_COLUMNS: Final = {
    "cpu": (UsageValue.THREAD_CPU, 1e6),
    "run_delay": (UsageValue.RUN_DELAY, 1e6),
    "process_cpu": (UsageValue.PROCESS_CPU, 1e6),
    "collector": (UsageValue.COLLECTOR, 1e6),
    "major_faults": (UsageValue.MAJOR_FAULTS, 1.0),
}
_OF_THREAD: Final = ("cpu", "run_delay", "major_faults")
"""Readings of one thread: their difference from another thread's means nothing."""


@dataclass(frozen=True, eq=False)
class RankUsage:
    """One rank's use of the processor by step, in ascending order, as in the `UsageMatrix`; NaN = not known.

    Each value is what was added since the end of the last pass of the step before: it covers the rank's own time
    and its waiting for buckets. `load` is the machine's load average at that moment. `begun_delay_ms`: what the
    thread waited for a core from its begin to the end of the first pass.
    """

    step: Int64
    begun_delay_ms: float
    cpu: Float64
    run_delay: Float64
    process_cpu: Float64
    collector: Float64
    load: Float64
    major_faults: Float64


_NONE: Final = RankUsage(np.empty(0, np.int64), np.nan, **dict.fromkeys([*_COLUMNS, "load"], np.empty(0)))
"""Of a rank without such records."""


@dataclass(frozen=True, eq=False)
class UsageMatrix:
    """The use of the processor in the judged steps: [steps, ranks] float64, as in the `StepMatrix`; NaN = not known.

    `cpu` and `run_delay` are of the thread that runs backward, `process_cpu` and `collector` of its process;
    milliseconds. `load` is the load average of the rank's machine, `major_faults` how many pages of memory that thread
    had to read from a disk. `device` is for how much longer than the host an accelerator computed; ms.
    """

    cpu: Float64
    run_delay: Float64
    process_cpu: Float64
    collector: Float64
    load: Float64
    major_faults: Float64
    device: Float64


def rank_usage(records: Records) -> RankUsage:
    """Differences between one rank's usage records, which are sorted by ticket."""
    if not len(records):
        return _NONE
    # The last record of each step: a step may have several passes.
    steps, last = np.unique(records["step"][::-1], return_index=True)
    records = records[::-1][last]
    readings = records["times"].astype(np.float64)
    readings[records["times"] < 0] = np.nan
    same_thread = np.zeros(len(records), np.bool_)
    same_thread[1:] = records["thread"][1:] == records["thread"][:-1]
    columns = {}
    for name, (column, unit) in _COLUMNS.items():
        added = np.diff(readings[:, column], prepend=np.nan) / unit
        unknown = (added < 0) | (~same_thread if name in _OF_THREAD else np.zeros(len(added), np.bool_))
        columns[name] = np.where(unknown, np.nan, added)
    return RankUsage(
        step=steps.astype(np.int64),
        load=readings[:, UsageValue.LOAD_MILLI] / 1000.0,
        begun_delay_ms=float(readings[0, UsageValue.RUN_DELAY]) / 1e6,
        **columns,
    )


def usual_load(usage: RankUsage) -> float | None:
    """The median load average of a rank's machine; None: not known."""
    known = usage.load[np.isfinite(usage.load)]
    return float(np.median(known)) if len(known) else None


def usage_matrix(
    parts: Sequence[RankUsage], devices: Sequence[tuple[Int64, Float64]], steps: Int64
) -> UsageMatrix:
    """The use of the processor in the judged steps.

    Args:
        devices: the same of their accelerators: steps, and for how much longer than the host it computed in each.
    """
    return UsageMatrix(
        device=side_by_side(devices, steps),
        **{
            name: side_by_side([(part.step, getattr(part, name)) for part in parts], steps)
            for name in (*_COLUMNS, "load")
        },
    )


def in_steps(usage: RankUsage, number: Int64, passes: Float64, after: Float64) -> tuple[Float64, Float64]:
    """The thread's time on a core and its waits for one in each of these steps; ms, NaN: not known.

    A reading is taken at the end of a step's last pass: what came after the pass before, such as an evaluation, belongs
    to the step before. It is shared out by the own time on both sides.

    Args:
        passes: own time in each up to the end of its last pass.
        after: own time after it.
    """
    passes, after = np.maximum(passes, 0.0), np.maximum(after, 0.0)
    follow = number[1:] == number[:-1] + 1
    # Where the step before is not known, it is taken to be as this one.
    ahead = after.copy()
    ahead[1:] = np.where(follow, after[:-1], after[1:])
    whole = passes + ahead
    before = np.divide(ahead, whole, out=np.zeros(len(whole)), where=whole > 0)
    found = []
    for reading in side_by_side([(usage.step, usage.cpu), (usage.step, usage.run_delay)], number).T:
        owed = reading * before
        gets = owed.copy()  # as much as it owes, where nobody knows what comes after its pass
        gets[:-1] = np.where(follow & np.isfinite(owed[1:]), owed[1:], owed[:-1])
        found.append(reading - owed + gets)
    return found[0], found[1]
