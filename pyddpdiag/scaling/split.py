"""Where the time of one run went, from its trace; without one, from the loop's own clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyddpdiag.bench.bucket_time import bucket_seconds_per_step
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.scaling.model import Split
from pyddpdiag.train.events import TrainResult


def split_of(result: TrainResult) -> Split:
    """The split of a run that has ended.

    Raises:
        TraceError: the run's traces cannot be read.
    """
    if result.trace is None:
        return _by_clock(result)
    return _by_trace(result, load_report(Path(result.trace)))


def _by_clock(result: TrainResult) -> Split:
    """Without DDP there is no communication. Tests are not separated from training here: they are compute."""
    wait = result.data_wait_s
    if result.world_size > 1:
        return Split(None, wait, None, None, None, None)
    return Split(result.seconds - wait, wait, 0.0, 0.0, 0.0, 0.0)


def _by_trace(result: TrainResult, report: RunReport) -> Split:
    """Means per judged step and rank, times the number of steps: a full trace has lost its oldest records."""
    steps = report.steps
    judged = steps.take(steps.judged)

    def whole(column: npt.NDArray[np.float64]) -> float | None:
        known = column[np.isfinite(column)]
        return float(known.mean()) * 1e-3 * result.steps if len(known) else None

    compute, wait, exposed = map(whole, (judged.compute_ms, judged.data_wait_ms, judged.exposed_ms))
    known = [part for part in (compute, wait, exposed) if part is not None]
    other = max(0.0, result.seconds - sum(known)) if compute is not None else None
    per_step = bucket_seconds_per_step(report)

    def of_run(part: str) -> float | None:
        seconds = per_step[part]
        return None if seconds is None else seconds * result.steps

    return Split(compute, wait, exposed, other, of_run("queue_s"), of_run("wire_s"))
