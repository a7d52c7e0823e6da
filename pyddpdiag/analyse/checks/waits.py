"""All ranks wait: for buckets after backward, for their loaders, or because each evaluates all of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.assignment import assignment, saved_by_hiding
from pyddpdiag.analyse.bounds import ALL_LATENCY_BYTES, LEAST_MS, MATTERS_SHARE
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.core_waits import saved_ms
from pyddpdiag.analyse.exposure import Exposure, exposure_of
from pyddpdiag.analyse.filing import DATA
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.links.interface_use import single_flow
from pyddpdiag.analyse.step_matrix import lower_median, median, step_walls
from pyddpdiag.analyse.tables import unused_rows
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import of_part
from pyddpdiag.analyse.windows import Stretches, all_of
from pyddpdiag.analyse.wire_fit import can_halve, half_gain_ms, lasting_buckets, shared_gain_ms
from pyddpdiag.model.account import START_UP
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.rows import BucketStats
from pyddpdiag.model.words import at, count, milliseconds, number, percent, times

_ADVICE: Final = {
    "arrival": "Most of the buckets' time is waiting for the slowest rank: even out the ranks first.",
    "queue": "Buckets come faster than they are reduced and queue for Gloo's worker threads: less data ({less}"
    "accumulation) or a faster link.",
    "wire": "The transfer itself takes longest: less data ({less}accumulation) or a faster link.",
}


_ALL_LATENCY: Final = (
    "So few bytes take hardly any time, only the messages' latency does: synchronise less often (a larger batch, "
    "accumulation)."
)


def _exposed(view: RunView) -> Iterator[Finding]:
    exposure, steps = view.exposure, view.judged
    if not steps.can_judge:
        return
    full = exposure.is_found and exposure.confidence != "low"
    span = None if full else exposure.span
    if not (exposure.is_found or span):
        return
    if view.stalled_s and not exposure.is_typical:
        # A link that is down makes few steps long; a typical one says nothing of it.
        return
    buckets = view.buckets
    lasting = lasting_buckets(buckets)
    blamed = max(
        lasting, key=lambda one: one.cost_ms * (1.0 - (one.times.hidden_fraction.median or 0.0)), default=None
    )
    totals = {
        name: sum((getattr(b.times, f"{name}_ms").median or 0.0) * b.judged for b in buckets)
        for name in _ADVICE
    }
    longest = max(totals, key=lambda name: totals[name])
    part = span or all_of(len(steps.step))
    there, (since, until) = exposure.within(part), part.between(steps.step)
    cost_s = float(np.nansum(there.least)) / 1e3
    message = (
        f"Communication is {percent(there.share)} exposed{part.words(steps.step)}: {there.of_step} are spent waiting "
        "for buckets after backward ended."
    )
    halves = longest != "arrival" and view.advice.fits("--compress")
    half = half_gain_ms(exposure.cost_ms, lasting, view.links) if halves else None
    rate = view.link_faults.mbit_per_s
    if rate is not None:
        message += f" The links between the hosts carry {number(rate)} Mbit/s while something is to be sent."
    # No link is slower than the others, but what else goes over one holds up the whole ring.
    other = single_flow(view.other_traffic)
    if other is not None:
        message += f" {other.words}"
    yield Finding(
        kind="exposed_communication",
        severity="warning",
        message=message,
        confidence="medium" if span else exposure.confidence,
        rank=other.rank if other else None,
        peer=other.peer if other else None,
        bucket=blamed.bucket if blamed else None,
        parameter=blamed.parameters[0] if blamed and blamed.parameters else None,
        since_step=since,
        until_step=until,
        cost_ms=1e3 * cost_s / exposure.typical.steps if span else exposure.cost_ms,
        cost_s=cost_s,
        evidence={
            "exposed_ms": there.typical_ms,
            "step_ms": there.median_step_ms,
            "share": there.typical.value,
            "share_at_least": exposure.typical.at_least,
            "share_at_most": exposure.typical.at_most,
            "share_of_time": exposure.sums.value,
            "until_step": until,
            "largest_part": longest,
            "mbit_per_s": rate,
            "half_saves_ms": half,
            "other_traffic_bytes": other.other if other else None,
            **of_part(view, part, steps.step, exposure.least, "exposed"),
            **{f"{name}_total_ms": value for name, value in totals.items()},
        },
        change_mind="The other bytes passed before the first step or after the last: they are counted over all of the "
        "recording."
        if other
        else "The processor is shared with other work, so that all-reduces get less of it than in a real run.",
        advice=other.advice if other else _less_exposed(view, lasting, longest, half),
    )


def _less_exposed(view: RunView, lasting: Sequence[BucketStats], part: str, half_ms: float | None) -> str:
    """What fits these buckets: few bytes take as long as one, and a single parameter cannot be split."""
    if part != "arrival" and lasting and all(bucket.bytes <= ALL_LATENCY_BYTES for bucket in lasting):
        return _ALL_LATENCY
    besides, cap = "", view.advice.ddp_option("bucket_cap_mb=...")
    if len(lasting) == 1 and len(lasting[0].parameters) != 1:
        known, exposed = assignment(view.names, lasting), view.exposure.cost_ms
        saved = saved_by_hiding(view, lasting, exposed)
        if (known is None or not known.is_one_piece) and saved >= max(
            LEAST_MS, MATTERS_SHARE * view.exposure.step_ms
        ):
            besides = (
                f" All gradients are in one bucket: with smaller buckets ({cap}), backward would hide up to "
                f"{milliseconds(saved)} of it."
            )
    halved = half_ms is not None and half_ms >= LEAST_MS
    saves = f", which would save about {milliseconds(half_ms)}" if half_ms and halved else ""
    less = f"bfloat16{saves}, " if can_halve(lasting) and view.advice.fits("--compress") else ""
    line = view.advice.line("--compress", "bf16") if halved else ""
    return f"{_sparse(view, lasting)}{_ADVICE[part].format(less=less)}{besides}{line}"


def _sparse(view: RunView, lasting: Sequence[BucketStats]) -> str:
    """For gradients that are mostly zeros; empty: it is not known that they are, or they are sent otherwise already."""
    if assignment(view.names, lasting) is None:
        return ""
    found, how = unused_rows(view.names.modules, view.sidecars), view.advice.sparse()
    return f"{found.words} {how[:1].upper()}{how[1:]}. Or: " if found is not None and how else ""


def _loopback(view: RunView) -> Iterator[Finding]:
    """All ranks are on one machine, and their processors copy the gradients through its loopback interface."""
    exposed, links = view.exposure, view.links
    lasting, ranks = lasting_buckets(view.buckets), len({link.rank for link in links})
    if not exposed.is_found or not view.on_loopback or ranks < 2:
        return
    if lasting and all(bucket.shared_memory for bucket in lasting):
        return  # what the links carried was no gradients
    can_share = view.advice.fits("--shared-memory")
    saved = shared_gain_ms(exposed.cost_ms, view.buckets) if can_share else None
    shared, line = "", ""
    # What saves more than the error of the estimate comes first.
    if saved is not None and saved >= LEAST_MS:
        shared = (
            f"Average in shared memory: {view.advice.share_memory()} would save about {milliseconds(saved)} of these "
            f"{milliseconds(exposed.cost_ms)} per step, by a model of this run (pyddpdiag help shared-memory). Or: "
        )
        line = view.advice.line("--shared-memory", "auto")
    halves = can_halve(lasting) and view.advice.fits("--compress")
    yield Finding(
        kind="loopback",
        severity="warning",
        message=f"all ranks are on one machine and exchange gradients through its loopback interface, "
        f"which takes processor time from training: {exposed.of_step} ({percent(exposed.share)}) are spent waiting "
        "for buckets after backward ended.",
        confidence=exposed.confidence,
        cost_ms=exposed.cost_ms,
        evidence={
            "exposed_ms": exposed.cost_ms,
            "step_ms": exposed.step_ms,
            "share": exposed.share,
            "ranks": ranks,
            "bytes": sum(link.bytes or 0 for link in links),
            "shared_memory_saves_ms": saved,
        },
        change_mind="The processor is shared with other work, so that copies take longer than in a real run.",
        advice=f"{_sparse(view, lasting)}{shared}Use fewer processes with more threads each (OMP_NUM_THREADS)"
        + (f", or send half as much: {view.advice.compress()}".rstrip(",") if halves else "")
        + f".{line}",
    )


def _evaluations(view: RunView) -> Iterator[Finding]:
    # The ranks' lives since their first step.
    run_s = max((one.wall_s - sum(one.part(part) for part in START_UP) for one in view.account), default=0.0)
    found = [one for one in view.full_evaluations if one.saved_s >= bounds.WORTH_A_WORD * run_s > 0.0]
    if not found:
        return
    longest, steps = found[0], view.judged.steps
    took_s, saved_s = sum(one.took_s for one in found), sum(one.saved_s for one in found)
    samples = (
        "the same samples" if longest.samples is None else f"the same {count(longest.samples, 'sample')}"
    )
    more = "" if len(found) == 1 else f", and {count(len(found) - 1, 'more loader')} likewise"
    yield Finding(
        kind="full_evaluation",
        severity=bounds.severity(saved_s, run_s),
        message=f"for {took_s:.1f} of {run_s:.1f} s every rank evaluates all of the data{at(longest.where)}, {samples} "
        f"({longest.sampler}), {times(longest.passes)}{more}: each of {len(longest.ranks)} ranks could take a part.",
        confidence="high",
        where=longest.where or None,
        # Evaluations are of the whole run, and there may be records of its end only.
        cost_ms=1e3 * saved_s / run_s * view.meetings.run_s / steps if steps else None,
        cost_s=saved_s,
        evidence={
            "took_s": took_s,
            "run_s": run_s,
            "share": took_s / run_s,
            "saved_s": saved_s,
            "passes": longest.passes,
            "samples": longest.samples,
            "ranks": len(longest.ranks),
            "passes_compared": longest.compared,
        },
        change_mind="The result needs all samples on one rank, and cannot be put together from those of parts.",
        advice="Give each rank its part: DataLoader(dataset, batch_size=..., sampler=DistributedSampler(dataset, "
        "shuffle=False)), and all-reduce the sums and counts at the end. The sampler repeats some samples where they "
        f"do not divide evenly. That would save up to {saved_s:.1f} s.",
    )


def _data(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    wall = step_walls(steps)
    held_up = exposure_of(lower_median(steps.data_wait), wall, steps.wall_ms, can_judge=steps.can_judge)
    if held_up.typical.steps < bounds.LEAST_STEPS or not steps.can_judge:
        return
    span = None if held_up.is_large else _part_of_the_run(held_up)
    if not (span or held_up.is_large):
        now_and_then = list(_now_and_then(view, wall))
        if now_and_then:
            yield from now_and_then
            return
    if not (span or held_up.is_typical):
        return
    part = span or all_of(len(steps.step))
    there = held_up.within(part)
    lost_ms = float(np.nansum(there.least))
    since, until = part.between(steps.step)
    found = Finding(
        kind="data_wait",
        severity="warning",
        message=f"The ranks wait for data{part.words(steps.step)}: "
        f"{milliseconds(there.typical_ms)} of {milliseconds(there.median_step_ms)} per step "
        f"({percent(there.typical.value)}) pass before the loader delivers a batch.",
        confidence="medium" if span else held_up.confidence,
        since_step=since,
        until_step=until,
        cost_ms=lost_ms / held_up.typical.steps if span else there.typical_ms,
        cost_s=lost_ms / 1e3,
        evidence={
            "data_wait_ms": there.typical_ms,
            "step_ms": there.median_step_ms,
            "share": there.typical.value,
            "until_step": until,
            **of_part(view, part, steps.step, held_up.least, "data_wait"),
        },
        change_mind="The steps contain a pause on purpose (evaluation, checkpoints) before the next batch.",
        advice=f"Give the loader more workers ({view.advice.workers('...')}), prefetching, or a larger batch.",
    )
    yield with_line(found, view.lines.most_of(steps.step[part.rows], DATA), "the wait")


def _part_of_the_run(held_up: Exposure) -> Stretches | None:
    """The parts in which they wait, and elsewhere much less."""
    span = held_up.span
    if span is None:
        return None
    rest = np.delete(held_up.least, span.rows)
    alike = median(held_up.least[span.rows]) < bounds.SHARED_TIMES * median(rest)
    return None if len(rest) >= bounds.LEAST_STEPS and alike else span


def _now_and_then(view: RunView, wall: Float64) -> Iterator[Finding]:
    """Some batches come late, now on this rank and now on that: no median shows it, and all wait for each of them."""
    steps = view.judged
    rows = ~np.isnan(steps.own + steps.data_wait).any(axis=1)
    if np.count_nonzero(rows) < bounds.MANY_STEPS:
        return
    own, waits = steps.own[rows], steps.data_wait[rows]
    lost = saved_ms(own, waits)
    held_up = exposure_of(lost, wall[rows], steps.wall_ms, can_judge=True)
    slow = lost > max(bounds.LEAST_MS, bounds.MOST * steps.wall_ms)
    # Where every batch takes its time, that is no lateness.
    if not lost[slow].sum() >= bounds.MOST * lost.sum() > 0.0:
        return
    # Whom the others wait for: of one rank alone another check tells.
    last = (own - own.min(axis=1)[:, None] + waits)[slow].argmax(axis=1)
    most = np.bincount(last, lost[slow], len(steps.ranks)).max()
    if len(steps.ranks) > 1 and most >= bounds.NEARLY_ALL * lost[slow].sum():
        return
    times, typical, share = int(np.count_nonzero(slow)), median(lost[slow]), held_up.sums.value
    few = times >= bounds.SEVERAL and share >= bounds.LARGE_SHARE
    repeated = held_up.repeated.at_least
    if held_up.mean_ms < bounds.LEAST_MS or not (repeated >= bounds.HEALTHY_SHARE or few):
        return
    at = steps.step[rows][slow]
    yield Finding(
        kind="data_wait",
        severity="warning",
        message=f"the ranks wait for data now and then: in {times} of {len(lost)} steps a batch comes "
        f"{milliseconds(typical)} late, on one rank or another, and all wait for it; {percent(share)} of the time goes "
        "by that way.",
        confidence="high"
        if repeated >= bounds.LARGE_SHARE
        else "medium"
        if repeated >= bounds.HEALTHY_SHARE
        else "low",
        since_step=int(at[0]),
        cost_ms=held_up.mean_ms,
        cost_s=float(lost.sum()) / 1e3,
        evidence={
            "data_wait_ms": typical,
            "step_ms": steps.wall_ms,
            "share": share,
            "share_at_least": repeated,
            "times": times,
            "steps": len(lost),
        },
        change_mind="The steps contain a pause on purpose (evaluation, checkpoints) before the next batch.",
        advice="Let the loader work further ahead (num_workers, prefetch_factor), so that a slow batch finds others "
        "ready; and look for what makes some samples slow: large files, a cold disk, a remote store.",
    )


CHECKS = (
    Check(("data_wait",), _data, per_group=True, rests_on="own times"),
    Check(("full_evaluation",), _evaluations, rests_on="records"),
    Check(("loopback",), _loopback, per_group=True),
    Check(("exposed_communication",), _exposed, per_group=True, rests_on="waits"),
)
