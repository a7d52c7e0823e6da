"""Scalars for TensorBoard: a run for each rank, one for the steps as a whole; written by TensorBoard's own package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyddpdiag.analyse.anatomy import step_parts
from pyddpdiag.errors import ResultWriteError, UsageError
from pyddpdiag.export.run import ExportedRun

Scalar = tuple[str, int, float]


def write_scalars(run: ExportedRun, folder: Path) -> list[Path]:
    """Write event files below `folder`; returns the folders of the runs, which `tensorboard --logdir` shows.

    Raises:
        UsageError: tensorboard is not installed.
        ResultWriteError: a file cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise UsageError(
            "TensorBoard's files are written by tensorboard, which is not installed.",
            hint="pip install 'pyddpdiag[tensorboard]'",
        ) from error
    parts = {"steps": list(_of_steps(run))}
    parts |= {f"rank_{rank.rank}": list(_of_rank(run, rank.rank)) for rank in run.report.ranks}
    base = run.bases[min(run.bases)].wall_ns / 1e9
    written = []
    for name, scalars in parts.items():
        if not scalars:
            continue
        try:
            writer = EventFileWriter(str(folder / name))
            for tag, step, value in scalars:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(wall_time=base, step=step, summary=summary))
            writer.close()
        except OSError as error:
            raise ResultWriteError(f"cannot write to '{folder}': {error.strerror or error}.") from error
        written.append(folder / name)
    return written


def _of_steps(run: ExportedRun) -> Iterator[Scalar]:
    """What belongs to no rank: the slowest rank's step, and communication itself."""
    steps = run.report.steps
    if not len(steps):
        return
    numbers, begin = np.unique(steps.step, return_index=True)
    for tag, values in (
        ("step/wall_ms", np.fmax.reduceat(steps.wall_ms, begin)),
        ("step/communication_ms", step_parts(steps).communication[begin]),
    ):
        yield from _known(tag, numbers.tolist(), values.tolist())
    found = run.occurrences
    keys = np.unique(found.step)
    if len(keys):
        order = np.argsort(found.step, kind="stable")
        wire = np.add.reduceat(np.nan_to_num(found.wire_ms[order]), np.searchsorted(found.step[order], keys))
        yield from _known("buckets/wire_ms", keys.tolist(), wire.tolist())


def _of_rank(run: ExportedRun, rank: int) -> Iterator[Scalar]:
    mine = run.report.steps.rank == rank
    table = run.report.steps.take(mine)
    late = step_parts(run.report.steps).late[mine]
    for tag, values in (
        ("rank/wall_ms", table.wall_ms),
        ("rank/compute_ms", table.compute_ms),
        ("rank/data_wait_ms", table.data_wait_ms),
        ("rank/exposed_ms", table.exposed_ms),
        ("rank/other_ms", table.other_ms),
        ("rank/waits_for_last_rank_ms", late),
        ("rank/own_ms", table.own_ms),
    ):
        yield from _known(tag, table.step.tolist(), values.tolist())
    norms = np.flatnonzero(run.norms.rank == rank)
    yield from _known("gradient/norm", run.norms.step[norms].tolist(), run.norms.norm[norms].tolist())


def _known(tag: str, steps: list[int], values: list[float]) -> Iterator[Scalar]:
    for step, value in zip(steps, values, strict=True):
        if value == value:
            yield tag, step, value
