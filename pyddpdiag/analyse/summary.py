"""From a run to everything a report shows."""

from __future__ import annotations

import numpy as np

from pyddpdiag.analyse.buckets import bucket_stats
from pyddpdiag.analyse.collectives import collective_stats
from pyddpdiag.analyse.failures import find_failures
from pyddpdiag.analyse.gradients import find_gradients
from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.occurrences import measure
from pyddpdiag.analyse.operations import open_operations, operation_errors
from pyddpdiag.analyse.pairing import gaps, mismatches
from pyddpdiag.analyse.passes import match_passes
from pyddpdiag.analyse.ranks import rank_stats
from pyddpdiag.analyse.steps import step_table
from pyddpdiag.analyse.timing import find_timing, matrix
from pyddpdiag.analyse.verdict import weigh
from pyddpdiag.errors import UsageError
from pyddpdiag.model import BucketStats, Gap, RankStats, RunReport
from pyddpdiag.model.words import count, listed
from pyddpdiag.trace.clock import align, offsets_of
from pyddpdiag.trace.merge import merge
from pyddpdiag.trace.run import Run


def analyse(run: Run, *, step: int | None = None, bucket: str | None = None) -> RunReport:
    """Analyse a run.

    Args:
        run: the traces of all ranks.
        step: show this step only; the verdict is of the whole run all the same.
        bucket: show buckets whose id begins with this, or with a parameter whose name contains it.

    Raises:
        UsageError: there is no such step or bucket.
    """
    local = merge(run)
    clocks = align(run, local)
    uncertainty = np.array(
        [np.inf if c.uncertainty_ns is None else c.uncertainty_ns for c in clocks], np.float64
    )
    passes = match_passes(run, local)
    occurrences = measure(local, local.shifted(offsets_of(clocks)), passes, uncertainty)
    steps = step_table(run, local, passes)
    names = Names(run)
    buckets = bucket_stats(run, occurrences, names, steps.left_out)
    ranks = rank_stats(run, steps, occurrences, clocks)
    opened, opened_total = open_operations(run, names)
    errors, errors_total = operation_errors(run, names)
    found_gaps, found_mismatches = gaps(run, local, names), mismatches(run, local, names)
    judged = matrix(steps)
    findings = find_failures(run, ranks, errors, opened, found_gaps, found_mismatches)
    findings += find_gradients(run, names)
    findings += find_timing(judged, buckets)
    verdict = weigh(run, judged, int(np.count_nonzero(occurrences.complete)), findings)
    shown, shown_steps, shown_ranks = buckets, steps, ranks
    if step is not None:
        shown_steps = steps.take(steps.step == step)
        if not len(shown_steps):
            raise UsageError(f"step {step} is in no trace.", hint=_steps_there(np.unique(steps.step)))
        shown = bucket_stats(run, occurrences, names, (), occurrences.step == step)
        shown_ranks = rank_stats(run, steps, occurrences, clocks, step)
    if bucket is not None:
        shown = _matching(shown, bucket)
    warnings = list(run.warnings)
    if local.repeated:
        warnings.append(
            f"{count(local.repeated, 'bucket record')} told the same all-reduce of the same rank twice."
        )
    warnings += [_say_gap(gap) for gap in found_gaps[:16]] + _clock_warnings(ranks)
    if shown_steps.left_out and step is None:
        warnings.append(_say_left_out(shown_steps.left_out))
    if steps.source != "step records" and len(steps):
        warnings.append(
            f"no step records: a step's time is taken from {steps.source}, end to end, and data wait is "
            "part of compute."
        )
    return RunReport(
        folder=str(run.folder),
        run_id=run.run_id,
        world_size=run.world_size,
        verdict=verdict,
        ranks=shown_ranks,
        buckets=shown,
        steps=shown_steps,
        other_collectives=collective_stats(run, step),
        in_flight_operations=opened,
        in_flight_total=opened_total,
        errors=errors,
        errors_total=errors_total,
        gaps=found_gaps,
        mismatches=found_mismatches,
        warnings=tuple(warnings),
        step=step,
        bucket=bucket,
    )


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
        reasons.append(f"{listed(cut)} (partly overwritten)")
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
    told = ", ".join(parts)
    return f"rank {gap.rank} has no record of some all-reduces of group {gap.group}: {told}; not counted."


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
