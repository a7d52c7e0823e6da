"""What each rank did from one meeting with the others to the next, with all ranks side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import SET_UP_MS
from pyddpdiag.analyse.distinct import in_all
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.life import TAIL, Between
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.analyse.usage import RankUsage
from pyddpdiag.trace.rows import Bool, Int64


@dataclass(frozen=True, eq=False)
class Meetings:
    """[meetings, ranks] in ms, NaN = not known; the fields of `Between` for the meetings that all ranks have.

    `step` is the step that ends in the meeting; `TAIL` is the one after the last step. `start`: the first row begins
    where the recorders were opened, or has what the ranks did before their first module.
    `core`: what the rank waited for a processor core, 0 where it is not known.
    `run_s`: from the first step (from the opening of the recorders, with `start`) to the last meeting.
    """

    ranks: tuple[int, ...]
    step: Int64
    busy: Float64
    outside: Float64
    calls: Float64
    data: Float64
    phase: Float64
    core: Float64
    epoch: Bool
    start: bool
    run_s: float

    @property
    def beyond(self) -> Float64:
        """By how much each rank was busy for longer than is usual for it; all of it at the start and in the tail."""
        return np.asarray(self.busy - np.where(self.usual_rows[:, None], self._usual, 0.0))

    @property
    def usual_rows(self) -> Bool:
        """The meetings of steps after the first one."""
        rows: Bool = np.asarray(self.step != TAIL)
        if len(rows) and self.start:
            rows[0] = False
        return rows

    @property
    def _usual(self) -> Float64:
        rows = self.busy[self.usual_rows]
        return np.median(rows, axis=0) if len(rows) else np.zeros(len(self.ranks))


def meetings(ranks: Sequence[int], parts: Sequence[Between], usage: Sequence[RankUsage]) -> Meetings:
    """The meetings of ranks that meet; what else the run has is left out."""
    there = [place for place, part in enumerate(parts) if len(part.step)]
    parts, usage = [parts[place] for place in there], [usage[place] for place in there]
    of = tuple(ranks[place] for place in there)
    common = in_all([part.step for part in parts]) if parts else np.empty(0, np.int64)
    at = [np.searchsorted(part.step, common) for part in parts]
    # A recorder that was opened later than the others has not seen what its rank did before.
    start = bool(len(common)) and all(part.from_start and part.step[0] == common[0] for part in parts)

    def column(name: str) -> Float64:
        rows = [getattr(part, name)[place] for part, place in zip(parts, at, strict=True)]
        return np.stack(rows, axis=1) if rows else np.empty((0, 0))

    busy, calls, outside = column("busy"), column("calls"), column("outside")
    if start:
        _add_set_up(busy, calls, outside, parts)
    core = (
        np.nan_to_num(side_by_side([(each.step, each.run_delay) for each in usage], common))
        if parts
        else busy
    )
    if start and all(len(each.step) and each.step[0] == common[0] for each in usage):
        core[0] = _core_waits_at_begin(parts, usage, busy[0])
    return Meetings(
        of,
        common,
        busy,
        outside,
        calls,
        column("data"),
        column("phase"),
        core,
        np.asarray(column("epoch").astype(np.bool_).all(axis=1)),
        start,
        max(((part.left_ns - part.begun_ns) / 1e9 for part in parts), default=0.0),
    )


def _add_set_up(busy: Float64, calls: Float64, outside: Float64, parts: Sequence[Between]) -> None:
    """Before the recorders were opened, too, if one rank was busy for longer than the others there."""
    if len(parts) < 2:
        return
    own, waited = np.zeros(len(parts)), np.zeros(len(parts))
    for mine, others in (_joining(parts), _before_pass(parts, 0), _before_pass(parts, 1)):
        if np.isfinite(mine).all() and np.isfinite(others).all():
            own, waited = own + mine, waited + others
    if np.diff(np.sort(own)[-2:])[0] >= SET_UP_MS:
        busy[0] += own
        outside[0] += own
        calls[0] += waited


def _core_waits_at_begin(parts: Sequence[Between], usage: Sequence[RankUsage], busy: Float64) -> Float64:
    """What each rank waited for a core while it was busy before the first meeting.

    A process that begins waits for cores, too, and on a busy machine ranks then come seconds apart. It waited in the
    same proportion whatever it did; where nobody knows when the processes began, only what one waited more counts.
    """
    delays = np.nan_to_num([each.begun_delay_ms for each in usage])
    lived = np.array([each.first_after for each in parts])
    if (lived > 0).all():
        return np.asarray(busy * np.minimum(1.0, delays / lived))
    return np.asarray(delays - delays.min())


def _before_pass(parts: Sequence[Between], stretch: int) -> tuple[Float64, Float64]:
    """What each rank did, and waited, between its process group and its first module, or from there to its pass."""
    own, waited = (
        [getattr(part, name)[stretch] for part in parts] for name in ("set_up_busy", "set_up_calls")
    )
    return np.array(own), np.array(waited)


def _joining(parts: Sequence[Between]) -> tuple[Float64, Float64]:
    """What each rank still did while others waited for it to join the process group, and how long it waited itself.

    A rank that was only started later did nothing that took long.
    """
    after, wait = (np.array([getattr(part, name) for part in parts]) for name in ("join_after", "join_wait"))
    first, second = np.sort(after)[:2]
    least = np.where(after == first, second, first)  # of the others
    return np.minimum(wait.max() - wait, np.maximum(0.0, after - least)), wait
