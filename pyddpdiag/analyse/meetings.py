"""What each rank did from one meeting with the others to the next, and one that works alone while all wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.chance import period
from pyddpdiag.analyse.distinct import in_all
from pyddpdiag.analyse.episodes import chance_of_one
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
    if np.diff(np.sort(own)[-2:])[0] >= bounds.SET_UP_MS:
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


@dataclass(frozen=True, eq=False)
class Alone:
    """The rank, at which steps (`TAIL`: after the last), and for how long each time, in ms; `own_ms`: without its waits
    for a core, in which nobody looks at it either.

    `run_s` is the time that it is a share of. `epochs`, `collective`, `phase`: whether it was at the end of epochs,
    while the others waited in a collective that is no bucket's, or in named phases. `regular`: every so many steps.
    """

    rank: int
    at: Int64
    lead_ms: Float64
    own_ms: Float64
    run_s: float
    epochs: bool
    collective: bool
    phase: bool
    from_start: bool
    regular: bool

    @property
    def lost_s(self) -> float:
        """For how long the others stood still."""
        return float(self.lead_ms.sum()) / 1e3

    @property
    def is_seen(self) -> bool:
        """Whether more than the time itself shows that this was no part of a step."""
        return self.epochs or self.collective or self.phase or self.from_start or self.regular

    @property
    def share(self) -> float:
        """Of the run."""
        return min(1.0, self.lost_s / self.run_s) if self.run_s > 0 else 0.0


def alone(found: Meetings, step_ms: float) -> Alone | None:
    """The rank that works alone; None: there is none."""
    if len(found.ranks) < 2 or not len(found.step) or not step_ms > 0:
        return None
    beyond = found.beyond - found.core
    # What waits for a core in its own work alone is late by its core. What works alone waits for one as part of that:
    # the more of it, the more it has to do, and so do the others for it.
    whole = np.where(found.usual_rows[:, None], found.beyond, beyond)
    ordered = np.sort(beyond, axis=1)
    lead = ordered[:, -1] - np.maximum(ordered[:, -2], 0.0)
    last = beyond.argmax(axis=1)
    rows = np.arange(len(lead))
    around = ~found.usual_rows
    outside = np.nan_to_num(found.outside[rows, last])
    # The least over the others: all of them waited there.
    others = found.calls.astype(np.float64).copy()
    others[rows, last] = np.inf
    waited = others.min(axis=1) >= bounds.MOST * lead
    in_phase = found.phase[rows, last] >= bounds.MOST * lead
    seen = around | found.epoch | waited | in_phase
    # Who only takes longer for what all do there is not alone.
    hit = (lead >= bounds.TWICE * step_ms) & (around | (lead >= bounds.MOST * beyond[rows, last]))
    hit[around] &= lead[around] >= bounds.STANDS_MS
    own, lead = lead, np.maximum(lead, whole[rows, last] - np.maximum(np.sort(whole, axis=1)[:, -2], 0.0))
    hit &= around | waited | in_phase | (outside >= bounds.MOST * lead)
    data = np.nan_to_num(found.data)
    if found.start:
        # To begin takes longer on one rank than on another, most of all on a busy machine, and so does a first pass.
        before = found.outside[0, last[0]] + data[0, last[0]]
        known = bool(np.isnan(before) or before >= bounds.MOST * lead[0])
        hit[0] &= lead[0] >= bounds.SET_UP_MS and bool(waited[0] or in_phase[0] or known)
    # Waiting for a batch is a part of the step, whatever the others wait in meanwhile.
    hit &= around | found.epoch | (data[rows, last] < bounds.MOST * lead)
    if found.start and data[0, last[0]] >= bounds.MOST * lead[0]:
        # The first batch, too, where others come as late.
        hit[0] &= not (data[1:] >= bounds.MOST * lead[0]).any()
    if not hit.any():
        return None
    place = int(np.bincount(last[hit], lead[hit], len(found.ranks)).argmax())
    mine = hit & (last == place)
    if np.count_nonzero(mine & in_phase) >= bounds.SEVERAL:
        mine &= ~in_phase
    unseen = mine & ~seen
    regular = period(found.step[unseen]) is not None
    long = unseen & (lead >= max(bounds.STANDS_MS, bounds.LONG * step_ms))
    if not regular and np.count_nonzero(long) < bounds.TWICE:
        mine &= seen
    if not (sure := _no_chance(found, mine, int(np.count_nonzero(hit & (last != place))))):
        mine &= lead >= bounds.STANDS_MS
    counted = hit & (seen | mine)
    if sure:
        # What another rank does once beside that, as at the end, is an incident of its own.
        times = np.bincount(last[counted], minlength=len(found.ranks))
        counted &= (last == place) | (times[last] >= bounds.TWICE)
    lost = float(lead[mine].sum())
    from_start = bool(found.start and mine[0])
    # What a rank does before the first step is no part of the steps' time.
    run_s = found.run_s + (float((found.busy + found.calls)[0].max()) / 1e3 if from_start else 0.0)
    if (
        not lost
        or lost < bounds.NEARLY_ALL * float(lead[counted].sum())
        or lost < 1e3 * bounds.HEALTHY_SHARE * run_s
    ):
        return None
    return Alone(
        found.ranks[place],
        found.step[mine],
        lead[mine],
        own[mine],
        run_s,
        _mostly(found.epoch | (found.step == TAIL), mine, lead) and bool((found.epoch & mine).any()),
        _mostly(waited, mine, lead),
        _mostly(in_phase, mine, lead),
        from_start,
        regular and bool((mine & unseen).any()),
    )


def _no_chance(found: Meetings, mine: Bool, others: int) -> bool:
    """Whether what hits any rank alike is not what hit this one so often: `others` is how often it hit the rest."""
    if found.epoch.any() and mine[found.epoch].all():
        return True
    at = found.step[mine & found.usual_rows]
    return period(at) is not None or chance_of_one(len(at), others, len(found.ranks)) <= bounds.CHANCE


def _mostly(what: Bool, mine: Bool, lead: Float64) -> bool:
    return bool(lead[mine & what].sum() >= bounds.NEARLY_ALL * lead[mine].sum())
