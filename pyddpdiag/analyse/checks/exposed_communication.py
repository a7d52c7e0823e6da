"""Backward has ended and the buckets are still in flight, on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.assignment import assignment
from pyddpdiag.analyse.bounds import ALL_LATENCY_BYTES, LEAST_MS, MATTERS_SHARE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.hiding import saved_by_hiding
from pyddpdiag.analyse.links.other_traffic import single_flow
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import of_part
from pyddpdiag.analyse.windows import all_of
from pyddpdiag.analyse.wire_fit import can_halve, half_gain_ms, lasting_buckets, shared_gain_ms
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.rows import BucketStats
from pyddpdiag.model.words import milliseconds, number, percent

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


def _look(view: RunView) -> Iterator[Finding]:
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
    blamed = max(lasting, key=_exposed_cost, default=None)
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
        advice=other.advice if other else _advice(view, lasting, longest, half),
    )


def _advice(view: RunView, lasting: Sequence[BucketStats], part: str, half_ms: float | None) -> str:
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
    return (
        _ADVICE[part].format(less=less) + besides + (view.advice.line("--compress", "bf16") if halved else "")
    )


def _exposed_cost(bucket: BucketStats) -> float:
    hidden = bucket.times.hidden_fraction.median
    return bucket.cost_ms * (1.0 - (hidden if hidden is not None else 0.0))


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
        advice=f"{shared}Use fewer processes with more threads each (OMP_NUM_THREADS)"
        + (f", or send half as much: {view.advice.compress()}".rstrip(",") if halves else "")
        + f".{line}",
    )


CHECKS = (
    Check(("loopback",), _loopback, per_group=True),
    Check(("exposed_communication",), _look, per_group=True, rests_on="waits"),
)
