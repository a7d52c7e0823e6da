"""Named parts of the program between steps: how long they took, and in which rank's own time they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.coverage import Coverage
from pyddpdiag.analyse.grouped import Float64, stats_by
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.model.rows import PhaseStats
from pyddpdiag.output import decode
from pyddpdiag.trace.layout import PhaseTime, Records
from pyddpdiag.trace.rows import Int64, is_in_flight
from pyddpdiag.trace.run import Run

NAME_LIMIT: Final = 64
"""A program has a few phases; a damaged file could claim millions of names."""


@dataclass(frozen=True, eq=False)
class RankPhases:
    """One rank's phases in the order of their tickets; ns, `end` is 0 for one that has not ended.

    `name` is a number into `names`.
    """

    names: tuple[str, ...]
    name: Int64
    begin: Int64
    end: Int64

    @property
    def ended(self) -> tuple[Int64, Int64]:
        """Begin and end of those that have ended."""
        whole = (self.begin > 0) & (self.end > 0)
        return self.begin[whole], self.end[whole]

    def within(self, left: Int64, entered: Int64) -> dict[str, Float64]:
        """Milliseconds of each phase within each span."""
        found = {}
        for number, name in enumerate(self.names):
            mine = (self.name == number) & (self.begin > 0) & (self.end > 0)
            if mine.any():
                found[name] = Coverage(self.begin[mine], self.end[mine]).within(left, entered) / 1e6
        return found


_NONE: Final = RankPhases((), *(np.empty(0, np.int64) for _ in range(3)))
"""Of a program that names none."""


def rank_phases(records: Records) -> RankPhases:
    """What analysis needs from one rank's phase records."""
    if not len(records):
        return _NONE
    raw, codes = np.unique(records["name"], return_inverse=True)
    kept = np.flatnonzero(codes < NAME_LIMIT)
    times = records["times"][kept]
    end = np.where(is_in_flight(records[kept]), 0, times[:, PhaseTime.END])
    return RankPhases(
        names=tuple(decode(bytes(name)) or "unnamed" for name in raw[:NAME_LIMIT]),
        name=codes[kept].astype(np.int64),
        begin=times[:, PhaseTime.BEGIN].copy(),
        end=end,
    )


def phase_stats(run: Run, parts: Sequence[RankPhases]) -> tuple[PhaseStats, ...]:
    """All phases by name and rank, those that took most time first."""
    found = []
    for trace, part in zip(run.ranks, parts, strict=True):
        if not part.names:
            continue
        known = (part.begin > 0) & (part.end > 0)
        took = np.where(known, (part.end - part.begin) / 1e6, np.nan)
        stats = stats_by(took, part.name, len(part.names))
        count = np.bincount(part.name, minlength=len(part.names))
        total = np.bincount(part.name, np.nan_to_num(took), minlength=len(part.names))
        ended = np.bincount(part.name[known], minlength=len(part.names))
        found += [
            PhaseStats(
                name,
                trace.rank,
                int(count[at]),
                stats[at].median,
                float(total[at]),
                int(count[at] - ended[at]),
            )
            for at, name in enumerate(part.names)
        ]
    total_of: dict[str, float] = {}
    for phase in found:
        total_of[phase.name] = total_of.get(phase.name, 0.0) + phase.total_ms
    return tuple(sorted(found, key=lambda phase: (-total_of[phase.name], phase.name, phase.rank)))


def phase_matrices(parts: Sequence[tuple[Int64, Mapping[str, Float64]]], steps: Int64) -> dict[str, Float64]:
    """By phase, its time before each judged step's all-reduces on each rank: [steps, ranks] float64 in ms.

    Args:
        parts: a rank's steps, and for each phase its milliseconds in each of them.
    """
    names = dict.fromkeys(name for _, phases in parts for name in phases)
    return {
        name: np.nan_to_num(
            side_by_side([(step, phases.get(name, np.zeros(len(step)))) for step, phases in parts], steps)
        )
        for name in list(names)[:NAME_LIMIT]
    }
