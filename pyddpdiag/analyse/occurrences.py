"""One bucket occurrence over the ranks of its group: arrival, queue, wire (docs/metrics.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.passes import Passes
from pyddpdiag.trace.layout import Flag
from pyddpdiag.trace.merge import Bool, Int64, Merged, UInt64


@dataclass(frozen=True, eq=False)
class Occurrences:
    """One entry per occurrence, milliseconds and GB/s, NaN = not known.

    `complete`: every rank that should be there ended it without an error; all values are NaN elsewhere.
    `last_arriver` is the position of the rank that came last, -1 where the clocks cannot tell.
    """

    reference: UInt64
    step: Int64
    module: Int64
    bytes: UInt64
    dtype: Int64
    group: UInt64
    group_size: Int64
    complete: Bool
    arrival_ms: Float64
    queue_ms: Float64
    wire_ms: Float64
    total_ms: Float64
    algbw_gbps: Float64
    busbw_gbps: Float64
    hidden_fraction: Float64
    last_arriver: Int64

    def __len__(self) -> int:
        """Number of occurrences."""
        return len(self.step)


def measure(local: Merged, aligned: Merged, passes: Passes, uncertainty_ns: Float64) -> Occurrences:
    """Split every occurrence.

    Args:
        local: merged records on each rank's own clock.
        aligned: the same on one clock.
        passes: the backward pass of each row of `local`.
        uncertainty_ns: how wrong each rank's clock may be; inf = not bounded.
    """
    rows, first = aligned.rows, aligned.first
    if not len(first):
        return _none()
    latest_enqueued = np.maximum.reduceat(rows.enqueued, first)
    earliest_enqueued = np.minimum.reduceat(np.where(local.rows.enqueued > 0, rows.enqueued, -(2**62)), first)
    started_seen = np.minimum.reduceat(local.rows.started, first) > 0
    ended = np.maximum.reduceat(rows.ended, first)
    complete = (
        aligned.paired
        & (earliest_enqueued > -(2**62))
        & (np.minimum.reduceat(local.rows.ended, first) > 0)
        & ((np.bitwise_or.reduceat(rows.flags, first) & (Flag.ERROR | Flag.ABANDONED)) == 0)
    )
    # No rank starts before it enqueues, so the latest start is never before the latest arrival; the maximum
    # keeps the three parts an exact partition all the same.
    started = np.maximum(np.maximum.reduceat(rows.started, first), latest_enqueued)
    arrival = np.where(complete, (latest_enqueued - earliest_enqueued) / 1e6, np.nan)
    total = np.where(complete, (ended - earliest_enqueued) / 1e6, np.nan)
    queue = np.where(complete & started_seen, (started - latest_enqueued) / 1e6, np.nan)
    wire = np.where(complete & started_seen, (ended - started) / 1e6, np.nan)
    size = rows.bytes[first].astype(np.float64)
    algbw = np.divide(size, wire * 1e6, out=np.full(len(first), np.nan), where=wire > 0)
    group_size = aligned.group_size
    return Occurrences(
        reference=rows.reference[first],
        step=rows.step[first],
        module=rows.module[first],
        bytes=rows.bytes[first],
        dtype=rows.dtype[first],
        group=rows.group[first],
        group_size=group_size,
        complete=complete,
        arrival_ms=arrival,
        queue_ms=queue,
        wire_ms=wire,
        total_ms=total,
        algbw_gbps=algbw,
        busbw_gbps=algbw * 2 * (group_size - 1) / group_size,
        hidden_fraction=np.where(complete, _hidden(local, passes), np.nan),
        last_arriver=_last_arriver(aligned, latest_enqueued, arrival, uncertainty_ns),
    )


def _hidden(local: Merged, passes: Passes) -> Float64:
    """The part of each occurrence that lies before its rank's backward ended, averaged over the ranks."""
    rows = local.rows
    finalize = passes.finalize_of_row()
    span = (rows.ended - rows.enqueued).astype(np.float64)
    known = (finalize > 0) & (rows.ended > 0) & (span > 0)
    before = np.clip(np.minimum(finalize, rows.ended) - rows.enqueued, 0, None)
    part = np.divide(before, span, out=np.zeros(len(rows)), where=known)
    count = np.add.reduceat(known.astype(np.int64), local.first)
    total = np.add.reduceat(part, local.first)
    return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))


def _last_arriver(aligned: Merged, latest: Int64, arrival: Float64, uncertainty_ns: Float64) -> Int64:
    """Who came last, where its lead over the clocks' uncertainty says so."""
    rows = aligned.rows
    is_last = np.flatnonzero(rows.enqueued == np.repeat(latest, aligned.count))
    occurrence = np.searchsorted(aligned.first, is_last, "right") - 1
    who = np.full(len(aligned), -1, np.int64)
    who[occurrence[::-1]] = rows.who[is_last[::-1]]
    doubt = np.maximum.reduceat(uncertainty_ns[rows.who], aligned.first)
    # NaN compares false, so incomplete occurrences have no last arriver.
    who[~((arrival * 1e6 > doubt) & (aligned.count > 1))] = -1
    return who


def _none() -> Occurrences:
    integers, ids, numbers = np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.float64)
    return Occurrences(
        reference=ids,
        step=integers,
        module=integers,
        bytes=ids,
        dtype=integers,
        group=ids,
        group_size=integers,
        complete=np.empty(0, np.bool_),
        arrival_ms=numbers,
        queue_ms=numbers,
        wire_ms=numbers,
        total_ms=numbers,
        algbw_gbps=numbers,
        busbw_gbps=numbers,
        hidden_fraction=numbers,
        last_arriver=integers,
    )
