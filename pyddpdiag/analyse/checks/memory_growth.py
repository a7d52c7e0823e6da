"""Ranks, or the workers of their loaders, take more and more memory until there is none left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.settings import by_host
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import count, ranks, size, verb

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


def _look(view: RunView) -> Iterator[Finding]:
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
            + (f" ({_steps(left_s, step_ms)})" if step_ms == step_ms else "")
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


def _steps(left_s: float, step_ms: float) -> str:
    return f"some {count(round(1e3 * left_s / step_ms), 'more step')}"


def _span(seconds: float) -> str:
    """About how long."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


CHECK = Check(("memory_growth",), _look, rests_on="records")
