"""Where a case's time went, by its trace: the same analysis that `pyddpdiag report` shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyddpdiag.analyse.summary import analyse
from pyddpdiag.errors import TraceError
from pyddpdiag.model import Stat
from pyddpdiag.trace.run import open_run


def split_of(folder: Path) -> dict[str, float | None]:
    """Seconds per step by part, None where the trace does not tell; see docs/benchmarks.md.

    `compute_s`, `data_wait_s` and `exposed_s` are medians over steps, averaged over the ranks, and add up to about
    the step. `arrival_s`, `queue_s` and `wire_s` are sums over the step's buckets; backward hides part of them.
    """
    try:
        report = analyse(open_run(folder))
    except TraceError:
        return {}
    found = {
        "compute_s": _mean([rank.compute_ms for rank in report.ranks]),
        "data_wait_s": _mean([rank.data_wait_ms for rank in report.ranks]),
        "exposed_s": _mean([rank.exposed_ms for rank in report.ranks]),
    }
    steps = len(set(report.steps.step[report.steps.judged].tolist()))
    buckets = [bucket for bucket in report.buckets if not bucket.first_steps_only and bucket.judged]
    for name in ("arrival", "queue", "wire"):
        medians = [(getattr(bucket.times, f"{name}_ms").median, bucket.judged) for bucket in buckets]
        known = bool(medians) and steps > 0 and all(median is not None for median, _ in medians)
        found[f"{name}_s"] = (
            sum(1e-3 * median * judged / steps for median, judged in medians) if known else None
        )
    return found


def _mean(stats: Sequence[Stat]) -> float | None:
    known = [stat.median for stat in stats if stat.median is not None]
    return 1e-3 * sum(known) / len(known) if known else None
