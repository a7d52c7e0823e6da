"""When steps were, by the clock on the wall; machines whose wall clocks show another time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

import numpy as np

from pyddpdiag.analyse.bounds import LOST_S
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.windows import Stretches
from pyddpdiag.model.words import ranks, seconds
from pyddpdiag.trace.rows import Int64


def times_of(view: RunView, rank: int, since: int | None, until: int | None) -> dict[str, str | None]:
    """When a rank came to the end of these steps, in UTC; of a step that is None nothing is said."""
    steps = (("since_time", since), ("until_time", until))
    return {name: _wall_clock(view, rank, step) for name, step in steps if step is not None}


def of_part(
    view: RunView, part: Stretches, step: Int64, values: Float64, name: str
) -> dict[str, float | int | str | None]:
    """What a finding about a part of the run says of it: what was usual around it, and when it was.

    Args:
        step: the number of each of the run's rows.
        values: of these rows, in ms; `name` is what the finding calls them.
    """
    if part.whole:
        return {}
    return {**part.evidence(values, name), **times_of(view, view.judged.ranks[0], *part.between(step))}


def _wall_clock(view: RunView, rank: int, step: int) -> str | None:
    ends = view.step_ends.get(rank)
    if ends is None:
        return None
    known = np.flatnonzero((ends.step == step) & (ends.at_ns > 0))
    at = wall_clock(view, rank, int(ends.at_ns[known[0]])) if len(known) else None
    return at.isoformat() if at else None


def wall_clock(view: RunView, rank: int, at_ns: int) -> datetime | None:
    """A moment of a rank's own clock in UTC, to the second; None: it is not known."""
    header = next((header for header in view.headers if header.rank == rank), None)
    if header is None or not header.wall_ns:
        return None
    try:
        seconds = (header.wall_ns + at_ns - header.monotonic_ns) // 10**9
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None


def other_wall_clocks(view: RunView) -> Iterator[str]:
    """A sentence for each machine whose wall clock surely differs from that of the lowest rank's machine.

    Times of steps rest on the monotonic clocks, which the all-reduces tie together, and are right all the same.
    """
    first = view.headers[0]
    off: dict[str, list[tuple[float, int]]] = {}
    for header, clock in zip(view.headers, view.clocks, strict=True):
        if clock.uncertainty_ns is None:
            continue
        own_ns = header.wall_ns - header.monotonic_ns - clock.offset_ns
        ahead_s = (own_ns - (first.wall_ns - first.monotonic_ns)) / 1e9
        if abs(ahead_s) > LOST_S:
            off.setdefault(view.sidecars[header.rank].host, []).append((ahead_s, header.rank))
    for host, found in off.items():
        ahead_s = min((each for each, _ in found), key=abs)
        yield (
            f"the wall clock of {host or 'the machine'} ({ranks([rank for _, rank in found])}) is "
            f"{seconds(abs(ahead_s))} or more {'ahead of' if ahead_s > 0 else 'behind'} that of rank {first.rank}: "
            "times of day there are wrong, times within the run are not."
        )
