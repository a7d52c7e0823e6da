"""When steps were, by the clock on the wall."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np

from pyddpdiag.analyse.view import RunView


def times_of(view: RunView, rank: int, since: int | None, until: int | None) -> dict[str, str | None]:
    """When a rank came to the end of these steps, in UTC; of a step that is None nothing is said.

    Args:
        view: of the run.
        rank: whose clock is read.
        since: the number of a step.
        until: of a later one.
    """
    steps = (("since_time", since), ("until_time", until))
    return {name: _wall_clock(view, rank, step) for name, step in steps if step is not None}


def _wall_clock(view: RunView, rank: int, step: int) -> str | None:
    header = next((header for header in view.headers if header.rank == rank), None)
    ends = view.step_ends.get(rank)
    if header is None or ends is None:
        return None
    known = np.flatnonzero((ends.step == step) & (ends.at_ns > 0))
    if not len(known) or not header.wall_ns:
        return None
    at_ns = header.wall_ns + int(ends.at_ns[known[0]]) - header.monotonic_ns
    try:
        return datetime.fromtimestamp(at_ns / 1e9, timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return None
