"""From a run to everything a report shows."""

from __future__ import annotations

import numpy as np

from pyddpdiag.analyse.buckets import group_stats
from pyddpdiag.analyse.catalog import find
from pyddpdiag.analyse.cube import rank_parts
from pyddpdiag.analyse.group_view import parts
from pyddpdiag.analyse.tried import tried_in
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import other_wall_clocks
from pyddpdiag.analyse.weigh.verdict import weigh
from pyddpdiag.errors import UsageError
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import BucketStats, Gap, RankStats
from pyddpdiag.model.words import count, listed


def analyse(view: RunView, *, step: int | None = None, bucket: str | None = None) -> RunReport:
    """The report of a run.

    Args:
        step: show only this step; the verdict still covers the whole run.
        bucket: show buckets whose id begins with this, or with a parameter whose name contains it.

    Raises:
        UsageError: there is no such step or bucket.
    """
    run = view.run
    meeting = parts(view)
    steps, ranks, buckets, collectives = view.steps, view.ranks, view.buckets, view.collectives
    if step is not None:
        steps = steps.take(steps.step == step)
        if not len(steps):
            raise UsageError(f"step {step} is in no trace.", hint=_steps_there(np.unique(view.steps.step)))
        ranks, buckets = view.ranks_of(step), view.buckets_of(step)
        collectives = view.collectives_of(step)
    if bucket is not None:
        buckets = _matching(buckets, bucket)
    return RunReport(
        folder=str(run.folder),
        run_id=run.run_id,
        world_size=run.world_size,
        verdict=weigh(meeting, find(view, meeting)),
        ranks=ranks,
        buckets=buckets,
        steps=steps,
        other_collectives=collectives,
        in_flight_operations=view.in_flight.first,
        in_flight_total=view.in_flight.total,
        errors=view.errors.first,
        errors_total=view.errors.total,
        gaps=view.gaps,
        mismatches=view.mismatches + view.different_calls,
        warnings=tuple(_warnings(view, step)),
        phases=view.phases,
        cube=view.cube,
        parts=rank_parts(steps, view.cube),
        step=step,
        bucket=bucket,
        links=view.links,
        lines=view.lines.table(),
        flames=view.lines.flames(),
        groups=group_stats(view.groups, view.names, view.buckets),
        account=view.account,
        tried=tried_in(view),
    )


def _warnings(view: RunView, step: int | None) -> list[str]:
    """What the reader should know about the traces."""
    warnings = list(view.run.warnings)
    if view.repeated:
        warnings.append(
            f"{count(view.repeated, 'bucket record')} repeated an all-reduce that the rank had recorded before."
        )
    if len(view.past):
        before = view.past
        unread = any(trace.older for trace in view.run.ranks)
        why = "their records were not read" if unread else "newer records took the place of theirs"
        warnings.append(
            f"of steps {before.steps.step[0]} to {before.until_step} there are only sums, over intervals of "
            f"{before.length} steps: {why}."
        )
    gaps = [gap for gap in view.gaps if gap.rank not in view.run.damaged]
    warnings += [_say_gap(gap) for gap in gaps[:16]] + _clock_warnings(view.ranks)
    warnings += other_wall_clocks(view)
    steps = view.steps
    if steps.left_out and step is None:
        warnings.append(_say_left_out(steps.left_out))
    if steps.source != "step records" and len(steps):
        warnings.append(
            f"no step records: a step's time is taken from {steps.source}, end to end, and data wait is "
            "part of compute."
        )
    return warnings


def _matching(buckets: tuple[BucketStats, ...], wanted: str) -> tuple[BucketStats, ...]:
    chosen = tuple(
        b for b in buckets if b.bucket.startswith(wanted.lower()) or any(wanted in p for p in b.parameters)
    )
    if not chosen:
        known = listed((b.bucket for b in buckets), 4)
        raise UsageError(
            f"no bucket's id begins with {wanted!r}, and no parameter's name contains it.",
            hint=f"Buckets here: {known}." if known else "There are no buckets here.",
        )
    return chosen


def _steps_there(steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    return f"Steps here: {steps[0]} to {steps[-1]}." if len(steps) else "There are no steps here."


def _say_left_out(steps: tuple[int, ...]) -> str:
    reasons = ["0 (warm-up and DDP's first bucket layout)"] if steps[0] == 0 else []
    cut = steps[len(reasons) :]
    if cut:
        reasons.append(f"{listed(cut)} (not all of their records are there)")
    return f"medians leave out step {' and '.join(reasons)}."


def _say_gap(gap: Gap) -> str:
    parts = [
        f"{amount} {where}"
        for amount, where in (
            (gap.before, "before its first record"),
            (gap.between, "between its records"),
            (gap.after, "after its last record"),
        )
        if amount
    ]
    gaps = ", ".join(parts)
    return f"rank {gap.rank} has no record of some all-reduces of group {gap.group}: {gaps}; not counted."


def _clock_warnings(ranks: tuple[RankStats, ...]) -> list[str]:
    found = []
    drifting = [rank.rank for rank in ranks if rank.clock.inconsistent]
    unbound = [rank.rank for rank in ranks if rank.clock.uncertainty_ms is None]
    if drifting:
        worst = max(rank.clock.uncertainty_ms or 0.0 for rank in ranks if rank.clock.inconsistent)
        found.append(
            f"the clock of rank {listed(drifting)} drifts by {2 * worst:.1f} ms or more over the run; "
            "arrival times across "
            "machines are no better than that."
        )
    if unbound:
        found.append(
            f"nothing ties the clock of rank {listed(unbound)} to the others: their arrival is a guess."
        )
    return found
