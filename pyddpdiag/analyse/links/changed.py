"""Links that became slow in a part of the run: the same link in that part and outside of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pyddpdiag.analyse.links.connections import Connection, Course, courses_of
from pyddpdiag.analyse.links.noise import EVIDENCE, LEAST_BYTES, RATE, deviation, slower
from pyddpdiag.analyse.steps import StepEnds
from pyddpdiag.analyse.windows import Stretches
from pyddpdiag.model import LinkStats


@dataclass(frozen=True)
class ChangedLink:
    """A link, with its busy time for each MB in a part of the run (`link.busy_ms_per_mb`) and outside of it."""

    link: LinkStats
    usual_ms_per_mb: float

    @property
    def change(self) -> float:
        """By how much longer it is busy for each MB there, in standard deviations of sound links."""
        return deviation(self.link.busy_ms_per_mb or 0.0, self.usual_ms_per_mb, RATE)


def changed_links(
    links: Iterable[LinkStats],
    connections: Iterable[Connection],
    ends: Mapping[int, StepEnds],
    part: Stretches,
    step: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> tuple[ChangedLink, ...]:
    """The links that are slow in a part of the run and were not outside of it, the worst first.

    Sound links between the same hosts become slower, too, as all wait for each other; the one at fault does by most.

    Args:
        links: those that carry the gradients.
        connections: of all ranks.
        ends: when each rank's steps ended.
        part: of the run.
        step: the number of each step that the part counts.
    """
    courses = courses_of(connections)
    found = []
    for link in links:
        mine = courses.get((link.rank, link.local, link.remote), ())
        if link.rank in ends and mine:
            changed = _changed(link, mine, ends[link.rank], part, step)
            if changed is not None and slower(changed.change, None) >= EVIDENCE:
                found.append(changed)
    found.sort(key=lambda each: -each.change)
    # Twice the standard deviation: of 100 links that become slower alike, five differ by more.
    return tuple(each for each in found if each.change >= found[0].change - 2)


def _changed(
    link: LinkStats,
    courses: Iterable[Course],
    ends: StepEnds,
    part: Stretches,
    step: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> ChangedLink | None:
    known = ends.at_ns > 0
    # The step that each moment lies in; -1: after the last one.
    numbers = np.append(ends.step[known], -1)
    # In the part, outside of it: busy time, bytes.
    sums = np.zeros((2, 2))
    for course in courses:
        there = np.isin(numbers[np.searchsorted(ends.at_ns[known], course.at_ns)], step[part.rows])
        grown = np.stack([np.diff(course.busy_us), np.diff(course.bytes)])
        moves = grown[1] > 0  # a link that is down is not slow
        within, beside = moves & there[1:] & there[:-1], moves & ~(there[1:] | there[:-1])
        sums += grown[:, within].sum(axis=1), grown[:, beside].sum(axis=1)
    if (sums[:, 1] < LEAST_BYTES).any() or (sums[:, 0] <= 0).any():
        return None
    there_ms, usual_ms = (sums[:, 0] / sums[:, 1] * 1e3).tolist()
    return ChangedLink(replace(link, busy_ms_per_mb=there_ms), usual_ms)
