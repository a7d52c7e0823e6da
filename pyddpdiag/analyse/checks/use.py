"""Ranks, or the workers of their loaders, take more and more memory until there is none left; a GPU is used little."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Literal

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.filing import DATA, OWN
from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.settings import by_host
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.rows import RankStats
from pyddpdiag.model.words import count, ranks, size, verb

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


def _low_gpus(view: RunView) -> Iterator[Finding]:
    if view.gpus:
        late = {one.rank for one in view.late_ranks if one.cause in ("core", "disk", "blocked")}
        yield from judge(view.gpus, view.ranks, late, partial(_line, view))


def _line(view: RunView, rank: int, reason: Reason) -> Where | None:
    parts = {"data_wait": (DATA,), "exposed_communication": (), "cannot_tell": ()}.get(reason, OWN)
    return view.lines.of([rank]).most_of(view.judged.step, *parts)


_OWN: Final = (
    "Look for what is kept from step to step: losses or outputs that go into a list as they are (loss.item() and "
    "output.detach() keep no graph), metrics without reset(), caches without a limit. tracemalloc names the line: "
    'tracemalloc.start(), take_snapshot() twice, some hundred steps apart, later.compare_to(earlier, "lineno")[:5]; a '
    "tensor is some bytes there, so look at their number."
)
_WORKERS: Final = (
    "Keep the samples of the data set in arrays or tensors and not in lists and dictionaries of Python objects: each "
    "worker copies the pages of those that it has touched. And look at caches in __getitem__."
)


def _memory(view: RunView) -> Iterator[Finding]:
    found = view.memory_growth
    step_ms = view.judged.wall_ms
    for members in by_host(view.sidecars, found).values():
        grown = {rank: found[rank] for rank in members}
        together = sum(one.per_ns for one in grown.values())
        left_s = min(one.free for one in grown.values()) / together / 1e9
        most = max(members, key=lambda rank: grown[rank].per_ns)
        one, per_step = grown[most], grown[most].per_ns * 1e6 * step_ms
        in_workers = one.workers > MOST
        since = None if one.from_begin else _step_at(view, most, one.since_ns)
        where = "the loader's workers of " if in_workers else ""
        yield Finding(
            kind="memory_growth",
            severity="warning",
            message=f"the memory of {where}{ranks(members)} grows by {size(int(one.per_ns * 3.6e12))} per hour"
            + (f" ({size(int(1000 * per_step))} per 1,000 steps)" if per_step == per_step else "")
            + (" each" if len(members) > 1 else "")
            + (f", from step {since} on" if since is not None else "")
            + f": {verb(members, 'it takes', f'rank {most} takes')} {size(one.taken)}, and {size(one.free)} of the "
            f"{'container' if one.container else 'machine'}'s {size(one.limit)} are left, which "
            f"{verb(members, 'is', 'are together')} used up in {_span(left_s)}"
            + (f" (some {count(round(1e3 * left_s / step_ms), 'more step')})" if step_ms == step_ms else "")
            + ". The system then kills a rank.",
            confidence="high" if one.steady else "medium",
            rank=members[0] if len(members) == 1 and len(view.ranks) > 1 else None,
            since_step=since,
            cost_ms=None,  # until a rank is killed
            evidence={
                "bytes_per_hour": one.per_ns * 3.6e12,
                "bytes_per_step": per_step if per_step == per_step else None,
                "share_of_workers": one.workers,
                "taken_bytes": one.taken,
                "free_bytes": one.free,
                "limit_bytes": one.limit,
                "limit_is_a_containers": int(one.container),
                "full_in_s": left_s,
                "ranks": len(members),
            },
            change_mind="It fills a cache or reads a data set into memory, and stops once that is there.",
            advice=_WORKERS if in_workers else _OWN,
        )


def _step_at(view: RunView, rank: int, at_ns: int) -> int | None:
    """The step of the first look from that moment on that belongs to one."""
    lines = view.lines.by_rank.get(rank)
    if lines is None:
        return None
    later = lines.step[np.searchsorted(lines.at_ns, at_ns) :]
    return int(later[later >= 0][0]) if (later >= 0).any() else None


def _span(seconds: float) -> str:
    """About how long."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


CHECKS = (
    Check(("memory_growth",), _memory, rests_on="records"),
    Check(("low_gpu_use",), _low_gpus, rests_on="records"),
)
