"""A step's time on its buckets, from a report: one computation for sweeps and scaling series."""

from __future__ import annotations

from pyddpdiag.model.report import RunReport


def bucket_seconds_per_step(report: RunReport) -> dict[str, float | None]:
    """`arrival_s`, `queue_s` and `wire_s`: seconds per step, sums over its buckets; backward hides part of them.

    Each bucket counts by its median and by how many of the judged steps it was in. A part is None where it is not known
    of every bucket: the sum of those that are known would look like a faster run. Buckets that only the first steps
    had are left out, as they are of all medians.
    """
    steps = len(set(report.steps.step[report.steps.judged].tolist()))
    buckets = [bucket for bucket in report.buckets if not bucket.first_steps_only and bucket.judged]
    found: dict[str, float | None] = {}
    for name in ("arrival", "queue", "wire"):
        medians = [(getattr(bucket.times, f"{name}_ms").median, bucket.judged) for bucket in buckets]
        known = bool(medians) and steps > 0 and all(median is not None for median, _ in medians)
        found[f"{name}_s"] = (
            sum(1e-3 * median * judged / steps for median, judged in medians) if known else None
        )
    return found
