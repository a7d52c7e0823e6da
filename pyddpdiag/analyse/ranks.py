"""One line per rank: what its trace holds and where its time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64, stats_by
from pyddpdiag.model.ending import End
from pyddpdiag.model.rows import ClockStats, RankStats
from pyddpdiag.model.stats import Stat
from pyddpdiag.model.steps import StepTable

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView

_TIMES: Final = ("wall_ms", "compute_ms", "data_wait_ms", "exposed_ms", "other_ms", "own_ms")


def rank_stats(view: RunView, step: int | None = None) -> tuple[RankStats, ...]:
    """All ranks with a trace, sorted by rank; medians over the judged steps, or over the one given."""
    run, steps, occurrences, now = view.run, view.steps, view.occurrences, view.now
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
    rows_of = [order[begin:end] for begin, end in bounds.tolist()]
    counted = [
        _synchronised(steps.take(mine[chosen[mine]])) if step is None else (steps.take(mine[chosen[mine]]), 1)
        for mine in rows_of
    ]
    medians = _medians([times for times, _ in counted])
    found = []
    for who, trace in enumerate(run.ranks):
        mine, micro_steps = rows_of[who], counted[who][1]
        header, clock = trace.header, view.clocks[who]
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
                in_flight=view.operations[who].open_total,
                errors=view.operations[who].failed_total,
                closed=header.closed,
                **{name: column[who] for name, column in medians.items()},
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
                cores=len(trace.sidecar.cores) or trace.sidecar.machine_cores,
                threads=trace.sidecar.torch_threads,
                load=view.loads[who],
                memory_bytes=trace.sidecar.memory.get("used", 0),
                machine_memory_bytes=trace.sidecar.memory.get("machine", 0),
            )
        )
    return tuple(found)


def _medians(times: Sequence[StepTable]) -> dict[str, list[Stat]]:
    """Each column's median and 95th percentile, by rank. At once: a call for each rank costs more than its steps."""
    who = np.repeat(np.arange(len(times)), [len(table) for table in times])
    return {
        name: stats_by(np.concatenate([getattr(table, name) for table in times]), who, len(times))
        for name in _TIMES
    }


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
