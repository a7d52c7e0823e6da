"""Calls of one operation that come back in every step, and what they cost there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import NEARLY_ALL, WORTH_A_WORD
from pyddpdiag.analyse.calls.collectives import RankCollectives, whole_rows
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import StepMatrix, median
from pyddpdiag.model.words import milliseconds
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.rows import Bool, Int64

ROOTED: Final = frozenset({b"gloo:broadcast"})
"""Collectives in which the others wait for one rank, and it for nobody: its time in them says nothing."""


@dataclass(frozen=True, eq=False)
class Recurring:
    """Calls that come back in nearly every judged step, of the ranks that meet in them.

    `took_ms` is what they take in each step, without waiting for a rank that comes late; `cost_ms` what the step would
    be shorter without them, which is more where ranks are late by turns: they wait at each meeting. `calls` and `bytes`
    are those of a typical step.
    """

    name: str
    ranks: tuple[int, ...]
    took_ms: Float64
    cost_ms: Float64
    calls: float
    bytes: int

    @property
    def known_ms(self) -> Float64:
        """What they cost in the steps in which that is known."""
        return np.asarray(self.cost_ms[~np.isnan(self.cost_ms)])

    @property
    def typical_ms(self) -> float:
        """What they cost in a typical step."""
        return median(self.cost_ms)

    @property
    def typical_took_ms(self) -> float:
        """What they take in a typical step."""
        return median(self.took_ms)


def met(found: Recurring, step_ms: float) -> str:
    """What to say beside the cost of calls, where it is more than what they take."""
    more = found.typical_ms - found.typical_took_ms
    if more < WORTH_A_WORD * step_ms:
        return ", apart from waiting for a late rank"
    return f", {milliseconds(more)} of which ranks that are late by turns wait for each other there"


class CallsInSteps:
    """The collectives of a run that come back in its judged steps.

    Args:
        every: the process groups, from `calls.parties`.
        ranks: the rank at each place of the run.
        steps: the judged steps.
        clocks: of the run's ranks.
    """

    def __init__(
        self, every: Sequence[Party], ranks: Sequence[int], steps: StepMatrix, clocks: Sequence[ClockOffset]
    ) -> None:
        there = set(steps.ranks)
        self._parties = [one for one in every if {ranks[who] for who in one.members} <= there]
        self._ranks, self._steps, self._clocks = ranks, steps, clocks

    def find(self, name: str, *, beside: bool | None = None) -> Iterator[Recurring]:
        """The calls of an operation in each process group.

        Args:
            name: of the operation.
            beside: only those beside the passes, or only those outside them; None: all.
        """

        def choose(part: RankCollectives) -> Bool:
            return np.ones(len(part.begun), np.bool_) if beside is None else part.beside == beside

        for party in self._parties:
            found = recurring(party, name.encode(), self._steps, self._clocks, self._ranks, choose)
            if found is not None:
                yield found


def recurring(
    party: Party,
    name: bytes,
    steps: StepMatrix,
    clocks: Sequence[ClockOffset],
    ranks: Sequence[int],
    choose: Callable[[RankCollectives], Bool],
) -> Recurring | None:
    """The calls of an operation, if they come back in nearly every judged step on all ranks of a party.

    Args:
        party: the ranks.
        name: of the operation.
        steps: the judged steps.
        clocks: of the run's ranks.
        ranks: the number of each place in the run.
        choose: which calls of a rank are meant.
    """
    if len(party.members) < 2 or not len(steps.step):
        return None
    if not all(name in part.names for part in party.parts):
        return None
    rows = [_rows(part, name, steps.step, choose(part)) for part in party.parts]
    counts = np.array(
        [
            np.bincount(np.searchsorted(steps.step, part.step[mine]), minlength=len(steps.step))
            for part, mine in zip(party.parts, rows, strict=True)
        ]
    )
    # Where a rank lost a record, its calls cannot be put beside the others'.
    alike = (counts == counts[0]).all(axis=0) & (counts[0] > 0)
    if np.mean(alike) < NEARLY_ALL:
        return None
    kept = [
        mine[alike[np.searchsorted(steps.step, part.step[mine])]]
        for part, mine in zip(party.parts, rows, strict=True)
    ]
    at = np.searchsorted(steps.step, party.parts[0].step[kept[0]])
    took = np.where(
        alike, np.bincount(at, _costs(party, name, kept, clocks), minlength=len(steps.step)), np.nan
    )
    size = np.bincount(at, party.parts[0].bytes[kept[0]], minlength=len(steps.step))
    return Recurring(
        name.decode(),
        tuple(ranks[who] for who in party.members),
        took,
        np.maximum(took, _held_ms(party, steps, ranks) * _share(party.parts[0], rows[0], steps.step)),
        float(np.median(counts[0][alike])),
        int(np.median(size[alike])),
    )


def _held_ms(party: Party, steps: StepMatrix, ranks: Sequence[int]) -> Float64:
    """How much shorter each step would be without any collective beside its buckets; 0 where it is not known.

    Until it hands over its last bucket, a rank computes and is in collectives. Without these, the ranks would meet when
    the one that computes longest has done so.
    """
    if not steps.other.size:
        return np.zeros(len(steps.step))
    places = [steps.place_of[ranks[who]] for who in party.members]
    own, other = steps.own[:, places], steps.other[:, places]
    return np.asarray(np.nan_to_num(np.maximum(0.0, (own + other).max(axis=1) - own.max(axis=1))))


def _share(part: RankCollectives, rows: Int64, steps: Int64) -> float:
    """The part of a rank's collectives in the judged steps that are these calls."""
    return len(rows) / max(1, int(np.count_nonzero(np.isin(part.step, steps))))


def _rows(part: RankCollectives, name: bytes, steps: Int64, chosen: Bool) -> Int64:
    mine = whole_rows(part, name)
    return mine[chosen[mine] & np.isin(part.step[mine], steps)]


def _costs(party: Party, name: bytes, rows: Sequence[Int64], clocks: Sequence[ClockOffset]) -> Float64:
    """What each call takes, in ms, from when the ranks that need each other have come."""
    took = np.stack([part.took_ms[mine] for part, mine in zip(party.parts, rows, strict=True)], axis=1)
    unsure = [clocks[who].uncertainty_ns for who in party.members]
    if name not in ROOTED or any(
        value is None or value / 1e6 > float(np.median(took)) / 10 for value in unsure
    ):
        return np.asarray(took.min(axis=1))
    offsets = [clocks[who].offset_ns for who in party.members]
    pairs = list(zip(party.parts, rows, offsets, strict=True))
    begun = np.stack([part.begun[mine] + offset for part, mine, offset in pairs], axis=1)
    ended = np.stack([part.ended[mine] + offset for part, mine, offset in pairs], axis=1)
    # DDP's root is the lowest rank. A receiver waits until both have come, and then for the data.
    met = np.maximum(begun[:, 1:], begun[:, :1])
    return np.asarray(np.maximum(0, ended[:, 1:] - met).min(axis=1) / 1e6)
