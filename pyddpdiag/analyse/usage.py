"""What each step cost the processor on each rank: time on a core, waiting for one, the collector's pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import StepMatrix, side_by_side
from pyddpdiag.trace.layout import Records, UsageValue
from pyddpdiag.trace.rows import Int64

_OF_THREAD: Final = ("cpu_ms", "run_delay_ms", "major_faults", "switches")
"""Readings of one thread: their difference from another thread's means nothing."""

_OF_MATRIX: Final = {
    "cpu": "cpu_ms",
    "run_delay": "run_delay_ms",
    "process_cpu": "process_cpu_ms",
    "collector": "collector_ms",
    "load": "load",
    "major_faults": "major_faults",
}
"""What the matrix takes of each rank."""

_COLUMNS: Final = {
    "cpu_ms": (UsageValue.THREAD_CPU, 1e6),
    "run_delay_ms": (UsageValue.RUN_DELAY, 1e6),
    "process_cpu_ms": (UsageValue.PROCESS_CPU, 1e6),
    "collector_ms": (UsageValue.COLLECTOR, 1e6),
    "major_faults": (UsageValue.MAJOR_FAULTS, 1.0),
    "switches": (UsageValue.INVOLUNTARY_SWITCHES, 1.0),
}


@dataclass(frozen=True, eq=False)
class RankUsage:
    """One rank's use of the processor by step, in ascending order; NaN = not known.

    Each value is what was added since the end of the last pass of the step before: it covers the rank's own time
    and its waiting for buckets. `load` is the machine's load average at that moment. `begun_delay_ms`: what the
    thread waited for a core from its begin to the end of the first pass.
    """

    step: Int64
    cpu_ms: Float64
    run_delay_ms: Float64
    process_cpu_ms: Float64
    collector_ms: Float64
    major_faults: Float64
    switches: Float64
    load: Float64
    begun_delay_ms: float


_EMPTY: Final = np.empty(0)
_NONE: Final = RankUsage(
    np.empty(0, np.int64), _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, begun_delay_ms=np.nan
)
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
    ranks: Sequence[int],
    parts: Sequence[RankUsage],
    devices: Sequence[tuple[Int64, Float64]],
    steps: StepMatrix,
) -> UsageMatrix:
    """The use of the processor in the judged steps.

    Args:
        ranks: the rank of each part.
        parts: what was kept of the ranks.
        devices: the same of their accelerators: steps, and for how much longer than the host it computed in each.
        steps: the judged steps.
    """
    of_rank = dict(zip(ranks, zip(parts, devices, strict=True), strict=True))
    mine = [of_rank[rank][0] for rank in steps.ranks]
    return UsageMatrix(
        device=side_by_side([of_rank[rank][1] for rank in steps.ranks], steps.step),
        **{
            name: side_by_side([(part.step, getattr(part, column)) for part in mine], steps.step)
            for name, column in _OF_MATRIX.items()
        },
    )
