"""Scalars for TensorBoard: a run for each rank, one for the steps as a whole. Needs no package of TensorBoard's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun

Bytes = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]

_POLYNOMIAL: Final = 0x82F63B78
_VERSION: Final = b"brain.Event:2"


@dataclass(frozen=True, eq=False)
class Series:
    """The points of one tag: by step, `wall_s` seconds since 1970 and a value."""

    tag: str
    step: npt.NDArray[np.int64]
    wall_s: npt.NDArray[np.float64]
    value: npt.NDArray[np.float64]

    def known(self) -> Series:
        """Without the points whose value is not known."""
        kept = ~np.isnan(self.value)
        return Series(self.tag, self.step[kept], self.wall_s[kept], self.value[kept])


def file_name(name: str, series: Sequence[Series]) -> str:
    """By which TensorBoard finds the file; `name` distinguishes it from others."""
    return f"events.out.tfevents.{int(_begin(series)):010d}.{socket.gethostname()}.{os.getpid()}.{name}"


def event_file(series: Sequence[Series]) -> bytes:
    """The content of one file with all points."""
    version = _double(np.array([_begin(series)])).tobytes() + bytes([0x1A, len(_VERSION)]) + _VERSION
    records = [_records(np.frombuffer(version, np.uint8)[None])]
    records += [_records(events) for one in series for events in _events(one)]
    return b"".join(part.tobytes() for part in records)


def _begin(series: Sequence[Series]) -> float:
    return min((float(one.wall_s.min()) for one in series if len(one.step)), default=0.0)


def _events(series: Series) -> Iterator[Bytes]:
    """The messages of a series, those of one length together, [points, bytes]."""
    tag = series.tag.encode()
    # Event.summary.value: tag and simple_value; all tags are short enough for a length of one byte.
    value_bytes = 2 + len(tag) + 5
    head = bytes([0x2A, value_bytes + 2, 0x0A, value_bytes, 0x0A, len(tag)]) + tag + bytes([0x15])
    # Seven bits to a byte; 0 takes one, too.
    widths = np.maximum(1, -(-np.frexp(series.step.astype(np.float64))[1] // 7))
    for width in np.unique(widths).tolist():
        mine = np.flatnonzero(widths == width)
        constant = np.broadcast_to(np.frombuffer(head, np.uint8), (len(mine), len(head)))
        simple = series.value[mine].astype("<f4").view(np.uint8).reshape(-1, 4)
        yield np.concatenate(
            [_double(series.wall_s[mine]), _varint(series.step[mine], width), constant, simple], axis=1
        )


def _double(wall_s: npt.NDArray[np.float64]) -> Bytes:
    """Event.wall_time."""
    tagged = np.full((len(wall_s), 9), 0x09, np.uint8)
    tagged[:, 1:] = wall_s.astype("<f8").view(np.uint8).reshape(-1, 8)
    return tagged


def _varint(step: npt.NDArray[np.int64], width: int) -> Bytes:
    """Event.step, in so many bytes."""
    tagged = np.full((len(step), 1 + width), 0x10, np.uint8)
    for place in range(width):
        more = 0x80 if place < width - 1 else 0
        tagged[:, 1 + place] = (step >> 7 * place & 0x7F) | more
    return tagged


def _records(messages: Bytes) -> Bytes:
    """The messages with lengths and checksums around them."""
    count, size = messages.shape
    length = np.frombuffer(np.array([size], "<u8").tobytes(), np.uint8)[None]
    header = np.concatenate([length, _checksum(length)], axis=1)
    return np.concatenate(
        [np.broadcast_to(header, (count, header.shape[1])), messages, _checksum(messages)], axis=1
    )


def _table() -> UInt32:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_TABLE: Final = _table()


def _checksum(rows: Bytes) -> Bytes:
    """The masked CRC-32C of each row, as four bytes."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & np.uint32(0xFF)] ^ crc >> np.uint32(8)
    crc = ~crc
    masked: UInt32 = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    return np.asarray(masked.astype("<u4").view(np.uint8).reshape(-1, 4))


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
