"""One training of a scaling series."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyddpdiag.bench.engine.collect import bucket_seconds_per_step
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.train.events import TrainResult


@dataclass(frozen=True)
class Split:
    """Seconds of a whole run, means over the ranks; None where not known.

    Attributes:
        compute_s: of training steps, without what follows.
        data_wait_s: waiting for batches.
        exposed_s: waiting for gradients after backward.
        other_s: outside of training steps: tests, checkpoints.
        queue_s: of all buckets in Gloo's queue, hidden behind backward or not.
        wire_s: of all buckets in transfer, hidden or not.
    """

    compute_s: float | None
    data_wait_s: float | None
    exposed_s: float | None
    other_s: float | None
    queue_s: float | None
    wire_s: float | None


@dataclass(frozen=True)
class Run:
    """One number of ranks."""

    world_size: int
    result: TrainResult
    split: Split

    @property
    def duration_s(self) -> float:
        """Of training and tests, without the start of the processes."""
        return self.result.seconds

    def name(self) -> str:
        """The number of ranks in words; a world of one may train without DDP."""
        if self.world_size > 1:
            return f"{self.world_size} ranks"
        return "1 rank" if self.result.buckets else "1 (no DDP)"

    def speed_up(self, base: Run) -> float:
        """How much faster than `base` this is."""
        return base.duration_s / self.duration_s

    def efficiency(self, base: Run) -> float:
        """Speed-up over the growth in ranks, 0 to 1 and beyond."""
        return self.speed_up(base) * base.world_size / self.world_size

    def curve(self) -> list[tuple[float, float, float, float]]:
        """Epoch (from 1), elapsed seconds, training loss, test accuracy."""
        elapsed, points = 0.0, []
        for epoch in self.result.history:
            elapsed += epoch.seconds
            points.append((epoch.epoch + 1.0, elapsed, epoch.train_loss, epoch.accuracy))
        return points


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
