"""A rank that works alone outside of the steps' passes while all others wait for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.bounds import (
    CHANCE,
    HEALTHY_SHARE,
    LONG,
    MOST,
    NEARLY_ALL,
    SET_UP_MS,
    SEVERAL,
    STANDS_MS,
    TWICE,
)
from pyddpdiag.analyse.chance import period
from pyddpdiag.analyse.episodes import chance_of_one
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.life import TAIL
from pyddpdiag.analyse.meetings import Meetings
from pyddpdiag.trace.rows import Bool, Int64


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
    waited = others.min(axis=1) >= MOST * lead
    in_phase = found.phase[rows, last] >= MOST * lead
    seen = around | found.epoch | waited | in_phase
    # Who only takes longer for what all do there is not alone.
    hit = (lead >= TWICE * step_ms) & (around | (lead >= MOST * beyond[rows, last]))
    hit[around] &= lead[around] >= STANDS_MS
    own, lead = lead, np.maximum(lead, whole[rows, last] - np.maximum(np.sort(whole, axis=1)[:, -2], 0.0))
    hit &= around | waited | in_phase | (outside >= MOST * lead)
    data = np.nan_to_num(found.data)
    if found.start:
        # To begin takes longer on one rank than on another, most of all on a busy machine, and so does a first pass.
        before = found.outside[0, last[0]] + data[0, last[0]]
        known = bool(np.isnan(before) or before >= MOST * lead[0])
        hit[0] &= lead[0] >= SET_UP_MS and bool(waited[0] or in_phase[0] or known)
    # Waiting for a batch is a part of the step, whatever the others wait in meanwhile.
    hit &= around | found.epoch | (data[rows, last] < MOST * lead)
    if found.start and data[0, last[0]] >= MOST * lead[0]:
        # The first batch, too, where others come as late.
        hit[0] &= not (data[1:] >= MOST * lead[0]).any()
    if not hit.any():
        return None
    place = int(np.bincount(last[hit], lead[hit], len(found.ranks)).argmax())
    mine = hit & (last == place)
    if np.count_nonzero(mine & in_phase) >= SEVERAL:
        mine &= ~in_phase
    unseen = mine & ~seen
    regular = period(found.step[unseen]) is not None
    if not regular and not _often(unseen & (lead >= max(STANDS_MS, LONG * step_ms))):
        mine &= seen
    if not _no_chance(found, mine, int(np.count_nonzero(hit & (last != place)))):
        mine &= lead >= STANDS_MS
    lost = float(lead[mine].sum())
    from_start = bool(found.start and mine[0])
    # What a rank does before the first step is no part of the steps' time.
    run_s = found.run_s + (float((found.busy + found.calls)[0].max()) / 1e3 if from_start else 0.0)
    if (
        not lost
        or lost < NEARLY_ALL * float(lead[hit & (seen | mine)].sum())
        or lost < 1e3 * HEALTHY_SHARE * run_s
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
    return period(at) is not None or chance_of_one(len(at), others, len(found.ranks)) <= CHANCE


def _often(rows: Bool) -> bool:
    return int(np.count_nonzero(rows)) >= TWICE


def _mostly(what: Bool, mine: Bool, lead: Float64) -> bool:
    return bool(lead[mine & what].sum() >= NEARLY_ALL * lead[mine].sum())
