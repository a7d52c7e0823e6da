"""All ranks are on one machine, and their processors copy the gradients through its loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from pyddpdiag.analyse.bounds import LEAST_MS
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.half_gain import can_halve
from pyddpdiag.analyse.shared_gain import shared_gain_ms
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wire_fit import lasting_buckets
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, percent


def _look(view: RunView) -> Iterator[Finding]:
    exposed, links = view.exposure, view.links
    if not exposed.is_found:
        return
    if not links or not all(link.loopback for link in links) or len({link.rank for link in links}) < 2:
        return
    lasting = lasting_buckets(view.buckets)
    if lasting and all(bucket.shared_memory for bucket in lasting):
        return  # what the links carried was no gradients
    ranks = len({link.rank for link in links})
    can_share = view.advice.fits("--shared-memory")
    saved = shared_gain_ms(exposed.cost_ms, view.buckets) if can_share else None
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
        advice=_shared_memory(view, saved)
        + "Use fewer processes with more threads each (OMP_NUM_THREADS)"
        + (f", or send half as much: {view.advice.compress()}".rstrip(",") if halves else "")
        + "."
        + (view.advice.line("--shared-memory", "auto") if _helps(saved) else ""),
    )


def _helps(saved_ms: float | None) -> TypeGuard[float]:
    return saved_ms is not None and saved_ms >= LEAST_MS


def _shared_memory(view: RunView, saved_ms: float | None) -> str:
    """What to do first, if it saves more than the error of the estimate."""
    if not _helps(saved_ms):
        return ""
    return (
        f"Average in shared memory: {view.advice.share_memory()} would save about {milliseconds(saved_ms)} of these "
        f"{milliseconds(view.exposure.cost_ms)} per step, by a model of this run "
        "(pyddpdiag help shared-memory). Or: "
    )


CHECK = Check(("loopback",), _look, per_group=True)
