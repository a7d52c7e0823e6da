"""One line per rank: what its trace holds and where its time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pyddpdiag.analyse.grouped import Float64, stat
from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.analyse.operations import RankOperations
from pyddpdiag.model import ClockStats, Now, RankStats, StepTable
from pyddpdiag.model.ending import End
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.run import Run


def rank_stats(
    run: Run,
    steps: StepTable,
    occurrences: Occurrences,
    operations: Sequence[RankOperations],
    clocks: tuple[ClockOffset, ...],
    now: Now,
    step: int | None = None,
) -> tuple[RankStats, ...]:
    """All ranks with a trace, sorted by rank; medians over the judged steps, or over the one given."""
    if step is None:
        chosen = steps.judged
        arriver = occurrences.last_arriver[~np.isin(occurrences.step, np.array(steps.left_out, np.int64))]
    else:
        chosen = steps.step == step
        arriver = occurrences.last_arriver[occurrences.step == step]
    arrivals = int(np.count_nonzero(arriver >= 0))
    last = np.bincount(arriver[arriver >= 0], minlength=len(run.ranks))
    # Each rank's rows of the table, found once for all ranks.
    order = np.argsort(steps.rank, kind="stable")
    bounds = np.searchsorted(steps.rank[order], [[trace.rank, trace.rank + 1] for trace in run.ranks])
    found = []
    for who, trace in enumerate(run.ranks):
        mine = order[slice(*bounds[who].tolist())]
        counted = steps.take(mine[chosen[mine]])
        times, micro_steps = _synchronised(counted) if step is None else (counted, 1)
        header, clock = trace.header, clocks[who]
        found.append(
            RankStats(
                rank=trace.rank,
                host=trace.sidecar.host,
                torch=trace.sidecar.torch,
                steps=len(mine),
                last_step=int(steps.step[mine].max()) if len(mine) else None,
                records=len(trace),
                overwritten=header.overwritten,
                skipped=header.skipped,
                dropped=header.dropped,
                torn=trace.torn,
                malformed=trace.malformed,
                in_flight=operations[who].open_total,
                errors=operations[who].failed_total,
                closed=header.closed,
                wall_ms=stat(times.wall_ms),
                compute_ms=stat(times.compute_ms),
                data_wait_ms=stat(times.data_wait_ms),
                exposed_ms=stat(times.exposed_ms),
                other_ms=stat(times.other_ms),
                own_ms=stat(times.own_ms),
                last_arrivals=int(last[who]),
                arrivals=arrivals,
                clock=ClockStats(
                    clock.offset_ns / 1e6,
                    None if clock.uncertainty_ns is None else clock.uncertainty_ns / 1e6,
                    clock.inconsistent,
                ),
                process=now.ranks[who].status,
                silent_ms=now.ranks[who].silent_ms,
                beat_age_ms=now.ranks[who].beat_age_ms,
                ended=header.ended,
                micro_steps=micro_steps,
                absent=trace.absent,
                ended_by=_ended_by(trace.sidecar.end),
            )
        )
    return tuple(found)


def _ended_by(end: End | None) -> str:
    return "" if end is None else end.error or end.signal


def _synchronised(steps: StepTable) -> tuple[StepTable, int]:
    """One rank's steps with those that do not synchronise added to the next one that does, and how many make one."""
    meets = np.flatnonzero(steps.buckets > 0)
    if not len(meets) or len(meets) == len(steps):
        return steps, 1
    starts = np.concatenate([[0], meets[:-1] + 1])

    def added(column: Float64) -> Float64:
        return np.asarray(np.add.reduceat(column[: meets[-1] + 1], starts))

    whole = replace(
        steps.take(meets),
        wall_ms=added(steps.wall_ms),
        compute_ms=added(steps.compute_ms),
        data_wait_ms=added(steps.data_wait_ms),
        exposed_ms=added(steps.exposed_ms),
        other_ms=added(steps.other_ms),
    )
    return whole, int(np.median(meets - starts + 1))
