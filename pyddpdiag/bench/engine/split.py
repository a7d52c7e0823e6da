"""Where a case's time went: the analysis of `pyddpdiag report`, applied to its trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyddpdiag.bench.bucket_time import bucket_seconds_per_step
from pyddpdiag.errors import TraceError
from pyddpdiag.model.stats import Stat
from pyddpdiag.pipeline import load_report


def split_of(folder: Path) -> dict[str, float | None]:
    """Seconds per step by part; None if the trace does not tell (docs/benchmarks.md).

    `compute_s`, `data_wait_s` and `exposed_s` are medians over steps, averaged over the ranks, and add up to about
    the step. The parts of the buckets: see `bucket_time`.
    """
    try:
        report = load_report(folder)
    except TraceError:
        return {}
    return {
        "compute_s": _mean([rank.compute_ms for rank in report.ranks]),
        "data_wait_s": _mean([rank.data_wait_ms for rank in report.ranks]),
        "exposed_s": _mean([rank.exposed_ms for rank in report.ranks]),
        **bucket_seconds_per_step(report),
    }


def _mean(stats: Sequence[Stat]) -> float | None:
    known = [stat.median for stat in stats if stat.median is not None]
    return 1e-3 * sum(known) / len(known) if known else None
