"""Where the time of one run went, by its trace; without one, by the loop's own clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyddpdiag.model import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.scaling.model import Split
from pyddpdiag.train.events import TrainResult


def split_of(result: TrainResult) -> Split:
    """The split of a run that has ended."""
    if result.trace is None:
        return _by_clock(result)
    return _by_trace(result, load_report(Path(result.trace)))


def _by_clock(result: TrainResult) -> Split:
    """Without DDP nothing is exchanged. Tests are told apart from training in neither way: they are compute here."""
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

    def buckets(name: str) -> float | None:
        known = [
            stat.median
            for bucket in report.buckets
            if not bucket.first_steps_only and (stat := getattr(bucket.times, name)).median is not None
        ]
        return sum(known) * 1e-3 * result.steps if known else None

    compute, wait, exposed = map(whole, (judged.compute_ms, judged.data_wait_ms, judged.exposed_ms))
    known = [part for part in (compute, wait, exposed) if part is not None]
    other = max(0.0, result.seconds - sum(known)) if compute is not None else None
    return Split(compute, wait, exposed, other, buckets("queue_ms"), buckets("wire_ms"))
