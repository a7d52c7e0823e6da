"""One line per rank: what its trace holds and where its time went."""

from __future__ import annotations

import numpy as np

from pyddpdiag.analyse.grouped import stat
from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.analyse.operations import error_records, open_records
from pyddpdiag.model import ClockStats, RankStats, StepTable
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.run import Run


def rank_stats(
    run: Run,
    steps: StepTable,
    occurrences: Occurrences,
    clocks: tuple[ClockOffset, ...],
    step: int | None = None,
) -> tuple[RankStats, ...]:
    """All ranks that have a trace, sorted by rank; medians over the judged steps, or over one if told."""
    if step is None:
        chosen = steps.judged
        arriver = occurrences.last_arriver[~np.isin(occurrences.step, np.array(steps.left_out, np.int64))]
    else:
        chosen = steps.step == step
        arriver = occurrences.last_arriver[occurrences.step == step]
    told = int(np.count_nonzero(arriver >= 0))
    last = np.bincount(arriver[arriver >= 0], minlength=len(run.ranks))
    found = []
    for who, trace in enumerate(run.ranks):
        mine = steps.rank == trace.rank
        counted = mine & chosen
        header, clock = trace.header, clocks[who]
        found.append(
            RankStats(
                rank=trace.rank,
                host=trace.sidecar.host,
                torch=trace.sidecar.torch,
                steps=int(np.count_nonzero(mine)),
                last_step=int(steps.step[mine].max()) if mine.any() else None,
                records=len(trace),
                overwritten=header.overwritten,
                skipped=header.skipped,
                dropped=header.dropped,
                torn=trace.torn,
                malformed=trace.malformed,
                in_flight=len(open_records(trace)),
                errors=len(error_records(trace)),
                closed=header.closed,
                wall_ms=stat(steps.wall_ms[counted]),
                compute_ms=stat(steps.compute_ms[counted]),
                data_wait_ms=stat(steps.data_wait_ms[counted]),
                exposed_ms=stat(steps.exposed_ms[counted]),
                own_ms=stat(steps.own_ms[counted]),
                last_arrivals=int(last[who]),
                arrivals=told,
                clock=ClockStats(
                    clock.offset_ns / 1e6,
                    None if clock.uncertainty_ns is None else clock.uncertainty_ns / 1e6,
                    clock.inconsistent,
                ),
            )
        )
    return tuple(found)
