"""Scalars for TensorBoard: a run for each rank, one for the steps as a whole. Needs no package of TensorBoard's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from pyddpdiag.export.event_file import Series, event_file, file_name
from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun


def outputs(run: ExportedRun) -> Iterator[Output]:
    """An event file for each run that has points; `tensorboard --logdir` shows the folder.

    A point's time is that at which its step ended on its rank, by the rank's wall clock; for the steps as a whole, on
    the lowest rank.
    """
    parts = {"steps": list(_of_steps(run))}
    parts |= {f"rank_{rank.rank}": list(_of_rank(run, rank.rank)) for rank in run.report.ranks}
    for name, series in parts.items():
        known = [some for one in series if len((some := one.known()).step)]
        if known:
            yield Output(PurePath("tensorboard", name, file_name(name, known)), partial(event_file, known))


def _of_steps(run: ExportedRun) -> Iterator[Series]:
    """What belongs to no rank: the slowest rank's step, and communication itself."""
    steps = run.report.steps
    if not len(steps):
        return
    numbers, begin = np.unique(steps.step, return_index=True)
    for tag, values in (
        ("step/wall_ms", np.fmax.reduceat(steps.wall_ms, begin)),
        ("step/communication_ms", steps.communication_ms[begin]),
    ):
        yield _series(run, min(run.bases), tag, numbers, values)
    found = run.occurrences
    keys = np.unique(found.step)
    if len(keys):
        order = np.argsort(found.step, kind="stable")
        wire = np.add.reduceat(np.nan_to_num(found.wire_ms[order]), np.searchsorted(found.step[order], keys))
        yield _series(run, min(run.bases), "buckets/wire_ms", keys, wire)


def _of_rank(run: ExportedRun, rank: int) -> Iterator[Series]:
    mine = run.report.steps.rank == rank
    table = run.report.steps.take(mine)
    for tag, values in (
        ("rank/wall_ms", table.wall_ms),
        ("rank/compute_ms", table.compute_ms),
        ("rank/data_wait_ms", table.data_wait_ms),
        ("rank/exposed_ms", table.exposed_ms),
        ("rank/other_ms", table.other_ms),
        ("rank/waits_for_last_rank_ms", run.report.steps.late_ms[mine]),
        ("rank/own_ms", table.own_ms),
    ):
        yield _series(run, rank, tag, table.step, values)
    norms = np.flatnonzero(run.norms.rank == rank)
    yield _series(run, rank, "gradient/norm", run.norms.step[norms], run.norms.norm[norms])


def _series(
    run: ExportedRun, rank: int, tag: str, step: npt.NDArray[Any], values: npt.NDArray[np.float64]
) -> Series:
    step = step.astype(np.int64)
    return Series(tag, step, run.wall_s(rank, step), values)
