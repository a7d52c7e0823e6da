"""Every other Gloo operation, by name and rank."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import stats_by
from pyddpdiag.model import CollectiveStats
from pyddpdiag.trace.layout import CollectiveTime, Flag, Kind
from pyddpdiag.trace.reader import RankTrace, is_in_flight
from pyddpdiag.trace.run import Run
from pyddpdiag.trace.text import decode

NAME_LIMIT: Final = 256
"""Gloo has some twenty operations; a damaged file could claim millions of names."""


def collective_stats(run: Run, step: int | None = None) -> tuple[CollectiveStats, ...]:
    """All other collectives of a run, those that took most time first; only those of one step if told."""
    found = [stats for trace in run.ranks for stats in _of_rank(trace, step)]
    total: dict[str, float] = {}
    for stats in found:
        total[stats.name] = total.get(stats.name, 0.0) + stats.total_ms
    return tuple(sorted(found, key=lambda stats: (-total[stats.name], stats.name, stats.rank)))


def _of_rank(trace: RankTrace, step: int | None) -> list[CollectiveStats]:
    records = trace.of_kind(Kind.COLLECTIVE)
    if step is not None:
        records = records[records["step"] == step]
    if not len(records):
        return []
    raw, codes = np.unique(records["name"], return_inverse=True)
    times = records["times"]
    ended = times[:, CollectiveTime.ENDED]
    took = np.where(ended > 0, (ended - times[:, CollectiveTime.STARTED]) / 1e6, np.nan)
    took[times[:, CollectiveTime.STARTED] == 0] = np.nan
    is_open = (is_in_flight(records) | ((records["flags"] & Flag.ABANDONED) > 0)) & (ended == 0)
    count = np.bincount(codes, minlength=len(raw))
    open_count = np.bincount(codes[is_open], minlength=len(raw))
    total = np.bincount(codes, np.nan_to_num(took), minlength=len(raw))
    stats = stats_by(took, codes, len(raw))
    return [
        CollectiveStats(
            name=decode(bytes(raw[code])) or "unknown",
            rank=trace.rank,
            count=int(count[code]),
            median_ms=stats[code].median,
            p95_ms=stats[code].p95,
            total_ms=float(total[code]),
            in_flight=int(open_count[code]),
        )
        for code in np.argsort(-total, kind="stable")[:NAME_LIMIT].tolist()
    ]
