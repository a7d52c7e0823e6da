"""A rank's GPU is used little; says what its step mostly does instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Literal

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.filing import DATA, OWN
from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.rows import RankStats

Reason = Literal["data_wait", "exposed_communication", "small_batch", "late", "cannot_tell"]

_ADVICE: Final[dict[Reason, str]] = {
    "data_wait": "the largest part of its step is waiting for data ({share:.0%}): give more --workers, or keep the "
    "data on a faster disk.",
    "exposed_communication": "the largest part of its step is waiting for gradients after backward ({share:.0%}); over "
    "Gloo they go through the CPU. The report shows whether a rank is late or the transfer slow; a larger --batch-size "
    "makes both rarer.",
    "small_batch": "neither data nor gradients hold it up (compute is {share:.0%} of its step), so the work of a step "
    "is too small to fill it: give a larger --batch-size.",
    "late": "its rank is late itself, and does not compute meanwhile: what is said of that rank is what to mend.",
    "cannot_tell": "why is unknown: no trace separates this rank's steps (--hook native records one).",
}


def judge(
    gpus: Iterable[GpuUse],
    ranks: Sequence[RankStats],
    late: Collection[int] = (),
    line_of: Callable[[int, Reason], Where | None] = lambda rank, reason: None,
) -> Iterator[Finding]:
    """One finding for each GPU of low use: the largest part of its rank's median step.

    Args:
        late: the ranks that are late for another reason than computing.
        line_of: the line at which a rank is while its step mostly does this; None: not known.
    """
    for use in gpus:
        if not use.low:
            continue
        reason, share = _reason(next((rank for rank in ranks if rank.rank == use.rank), None))
        if reason == "small_batch" and use.rank in late:
            reason = "late"
        where = line_of(use.rank, reason)
        yield Finding(
            kind="low_gpu_use",
            severity="note",
            message=str(use) + (f" {where.says('that time')}." if where else ""),
            confidence="low" if share is None else "medium",
            rank=use.rank,
            where=str(where.line) if where else None,
            evidence={
                "utilisation_percent": use.utilisation_percent,
                "samples": use.samples,
                "reason": reason,
                "share": share,
                **(where.facts if where else {}),
            },
            change_mind="Another program used the GPU at the same time, or the samples fell into pauses.",
            advice="Low use: " + _ADVICE[reason].format(share=share),
        )


def _reason(stats: RankStats | None) -> tuple[Reason, float | None]:
    """What most of the rank's step is spent on, and its share; None if that is not known."""
    parts: dict[Reason, float | None] = {}
    if stats is not None:
        parts = {
            "data_wait": stats.data_wait_ms.median,
            "exposed_communication": stats.exposed_ms.median,
            "small_batch": stats.compute_ms.median,
        }
    known = {reason: part for reason, part in parts.items() if part is not None}
    # An unknown part may be the largest.
    if len(known) < 3 or sum(known.values()) <= 0:
        return "cannot_tell", None
    reason = max(known, key=lambda part: known[part])
    return reason, known[reason] / sum(known.values())


def _look(view: RunView) -> Iterator[Finding]:
    if view.gpus:
        late = {one.rank for one in view.late_ranks if one.cause in ("core", "disk", "blocked")}
        yield from judge(view.gpus, view.ranks, late, partial(_line, view))


def _line(view: RunView, rank: int, reason: Reason) -> Where | None:
    parts = {"data_wait": (DATA,), "exposed_communication": (), "cannot_tell": ()}.get(reason, OWN)
    return view.lines.of([rank]).most_of(view.judged.step, *parts)


CHECK = Check(("low_gpu_use",), _look, rests_on="records")
