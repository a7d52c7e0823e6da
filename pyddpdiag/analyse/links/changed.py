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
    mbit_per_s: float
    usual_mbit_per_s: float

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
    spans = [
        (_at(ends, int(step[max(0, span.begin - 1)])), _at(ends, int(step[span.end - 1])))
        for span in part.spans
    ]
    # Busy time, bytes: in the part, outside of it.
    sums = np.zeros((2, 2))
    for course in courses:
        begin, end = course.at_ns[:-1], course.at_ns[1:]
        inside = np.zeros(len(begin), np.bool_)
        beside = np.ones(len(begin), np.bool_)
        for since, until in spans:
            inside |= (begin >= since) & (end <= until)
            beside &= (end <= since) | (begin >= until)
        for row, chosen in enumerate((inside, beside)):
            sums[row] += np.diff(course.busy_us)[chosen].sum(), np.diff(course.bytes)[chosen].sum()
    if (sums[:, 1] < LEAST_BYTES).any() or (sums[:, 0] <= 0).any():
        return None
    there, usual = (float(busy / 1e3 / (size / 1e6)) for busy, size in sums)
    # 1 MB in 1 ms are 8000 Mbit/s.
    return ChangedLink(replace(link, busy_ms_per_mb=there), usual, 8e3 / there, 8e3 / usual)


def _at(ends: StepEnds, step: int) -> int:
    """When this step ended, or the one before that is known."""
    known = np.flatnonzero((ends.step <= step) & (ends.at_ns > 0))
    return int(ends.at_ns[known[-1]]) if len(known) else 0
