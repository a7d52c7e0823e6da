"""What a rank does in its own time: it computes, is in a phase of the program, waits for a core, or sleeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyddpdiag.analyse.coverage import Coverage
from pyddpdiag.analyse.phases import rank_phases
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.analyse.usage import rank_usage
from pyddpdiag.model import StepTable
from pyddpdiag.model.details import OwnTime
from pyddpdiag.trace.layout import BackwardTime, Flag, Kind, StepTime
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64


def own_time(trace: RankTrace) -> OwnTime:
    """What one rank's readings of the processor and its phases say of each of its steps."""
    usage = rank_usage(trace.of_kind(Kind.USAGE))
    step, begin, end = _steps(trace)
    phases = Coverage(*rank_phases(trace.of_kind(Kind.PHASE)).ended).within(begin, end) / 1e6
    cpu, core = (
        side_by_side([(usage.step, column)], step)[:, 0] for column in (usage.cpu_ms, usage.run_delay_ms)
    )
    if trace.on_device:
        # A thread that sleeps until its device is done is not idle.
        cpu = np.full(len(step), np.nan)
    return OwnTime(np.full(len(step), trace.rank, np.int64), step, cpu, core, phases)


def joined(parts: Sequence[OwnTime]) -> OwnTime:
    """The own time of all ranks."""
    return OwnTime(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in OwnTime.__dataclass_fields__
        }
    )


def beside(steps: StepTable, own: OwnTime) -> OwnTime:
    """The same for the rows of a table, NaN where nothing is known of one."""
    columns = {name: np.full(len(steps), np.nan) for name in ("cpu_ms", "core_ms", "phase_ms")}
    for rank in np.unique(own.rank).tolist():
        mine, rows = own.rank == rank, np.flatnonzero(steps.rank == rank)
        for name, column in columns.items():
            values = getattr(own, name)[mine]
            column[rows] = side_by_side([(own.step[mine], values)], steps.step[rows])[:, 0]
    return OwnTime(steps.rank, steps.step, **columns)


def _steps(trace: RankTrace) -> tuple[Int64, Int64, Int64]:
    """Number, begin and end of each step; without step records from the end of one's last pass to the next's."""
    marks = trace.of_kind(Kind.STEP)
    marks = marks[(marks["flags"] & Flag.NO_BATCH) == 0]
    if len(marks):
        step, at = np.unique(marks["step"].astype(np.int64), return_index=True)
        begin, end = (marks["times"][at, column] for column in (StepTime.WAIT_BEGIN, StepTime.END))
    else:
        passes = trace.of_kind(Kind.BACKWARD)
        step, at = np.unique(passes["step"].astype(np.int64), return_inverse=True)
        end = np.zeros(len(step), np.int64)
        np.maximum.at(end, at, passes["times"][:, BackwardTime.FINALIZE_END])
        begin = np.concatenate([end[:1], end[:-1]])
    known = (begin > 0) & (end > begin)
    return step, np.where(known, begin, 0), np.where(known, end, 0)
