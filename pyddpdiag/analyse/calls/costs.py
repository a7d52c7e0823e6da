"""What collectives other than buckets cost the steps: calls that come back, and those from a root, in which not every
rank waits for every other one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, NEARLY_ALL, WORTH_A_WORD
from pyddpdiag.analyse.calls.collectives import Calls, RankCollectives, heaviest, whole_rows
from pyddpdiag.analyse.calls.parties import Party, from_root
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import StepMatrix, median, other_ms
from pyddpdiag.model.words import milliseconds
from pyddpdiag.trace.rows import Int64

FROM_ROOT: Final = (b"gloo:broadcast", b"gloo:scatter")
"""The root leaves them as soon as it has sent, and a receiver waits for the root alone."""


@dataclass(frozen=True, eq=False)
class HeldUp:
    """What collectives other than buckets cost each judged step, in ms.

    Attributes:
        rooted: by name, what those from a root cost.
        ms: all: on the rank that spends least there, or those from a root if that is more.
        heaviest: the operation that costs most; None: there is none.
        in_calls_ms: what the rank that spends least in such calls spends there, beside a backward pass, too.
    """

    rooted: Mapping[bytes, Float64]
    ms: Float64
    heaviest: Calls | None
    in_calls_ms: Float64


def held_up(steps: StepMatrix, parts: Sequence[RankCollectives], rooted: Mapping[bytes, Float64]) -> HeldUp:
    """What collectives other than buckets cost.

    Args:
        rooted: from `rooted_ms`.
    """
    spent = [
        _by_step(part.step.astype(np.int64), np.nan_to_num(part.took_ms)[:, None], steps.step)[:, 0]
        for part in parts
    ]
    cost = np.maximum(other_ms(steps), sum(rooted.values(), np.zeros(len(steps.step))))
    most = heaviest(parts, steps.step, rooted)
    return HeldUp(rooted, np.asarray(cost), most, np.min(spent, axis=0) if spent else cost)


def rooted_ms(every: Sequence[Party], steps: StepMatrix) -> dict[bytes, Float64]:
    """What each operation from a root costs each judged step on the receiver that it holds up longest, by name; ms."""
    found: dict[bytes, Float64] = {}
    for party, name in [(party, name) for party in every for name in FROM_ROOT]:
        known = party.complete and len(party.members) > 1 and party.error_ms < np.inf
        rows = party.rows(name) if known else None
        if rows is None:
            continue
        took, root = from_root(*party.times(rows))
        took = np.maximum(0.0, took - party.error_ms)
        took[:, root] = 0.0
        mine = [place for place, rank in enumerate(party.ranks) if rank in steps.place_of]
        outside = steps.other[:, [steps.place_of[party.ranks[place]] for place in mine]]
        step = party.parts[0].step[rows[0]].astype(np.int64)
        # What goes on beside a backward pass holds up nobody.
        of_step = np.fmin(_by_step(step, took[:, mine], steps.step), outside).max(axis=1, initial=0.0)
        found[name] = np.maximum(found.get(name, np.zeros(len(of_step))), of_step)
    return found


def _by_step(step: Int64, took: Float64, steps: npt.NDArray[np.int64]) -> Float64:
    """The sums of the calls by judged step, on each member."""
    sums = np.zeros((len(steps), took.shape[1]))
    at = np.searchsorted(steps, step)
    # What comes before the first judged step is a warm-up.
    counts = (at < len(steps)) & (step > (steps[0] - 1 if len(steps) else 0))
    np.add.at(sums, at[counts], took[counts])
    return sums


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
    """The collectives of a run that come back in its judged steps."""

    def __init__(self, every: Sequence[Party], steps: StepMatrix) -> None:
        self._parties = [one for one in every if set(one.ranks) <= set(steps.ranks)]
        self._steps = steps

    def find(self, name: str, *, beside: bool | None = None) -> Iterator[Recurring]:
        """The calls of an operation in each process group.

        Args:
            beside: only those beside the passes, or only those outside them; None: all.
        """
        for party in self._parties:
            found = _recurring(party, name.encode(), self._steps, beside)
            if found is not None:
                yield found


def _recurring(party: Party, name: bytes, steps: StepMatrix, beside: bool | None) -> Recurring | None:
    """The calls of an operation, if they come back in nearly every judged step on all ranks of a party."""
    if len(party.members) < 2 or not len(steps.step):
        return None
    if not all(name in part.names for part in party.parts):
        return None
    rows = []
    for part in party.parts:
        mine = whole_rows(part, name)
        meant = True if beside is None else part.beside[mine] == beside
        rows.append(mine[np.isin(part.step[mine], steps.step) & meant])
    places = [np.searchsorted(steps.step, part.step[at]) for part, at in zip(party.parts, rows, strict=True)]
    counts = np.array([np.bincount(at, minlength=len(steps.step)) for at in places])
    # Where a rank lost a record, its calls cannot be put beside the others'.
    alike = (counts == counts[0]).all(axis=0) & (counts[0] > 0)
    if np.mean(alike) < NEARLY_ALL:
        return None
    kept = [mine[alike[at]] for mine, at in zip(rows, places, strict=True)]
    at = places[0][alike[places[0]]]
    took = np.where(alike, np.bincount(at, _costs(party, name, kept), minlength=len(steps.step)), np.nan)
    first = party.parts[0]
    size = np.bincount(at, first.bytes[kept[0]], minlength=len(steps.step))
    # The part of a rank's collectives in these steps that are these calls.
    share = len(rows[0]) / max(1, int(np.count_nonzero(np.isin(first.step, steps.step))))
    return Recurring(
        name.decode(),
        party.ranks,
        took,
        np.maximum(took, _held_ms(party, steps) * share),
        float(np.median(counts[0][alike])),
        int(np.median(size[alike])),
    )


def _held_ms(party: Party, steps: StepMatrix) -> Float64:
    """How much shorter each step would be without any collective beside its buckets; 0 where it is not known.

    Until it hands over its last bucket, a rank computes and is in collectives. Without these, the ranks would meet when
    the one that computes longest has done so.
    """
    if not steps.other.size:
        return np.zeros(len(steps.step))
    places = [steps.place_of[rank] for rank in party.ranks]
    own, other = steps.own[:, places], steps.other[:, places]
    return np.asarray(np.nan_to_num(np.maximum(0.0, (own + other).max(axis=1) - own.max(axis=1))))


def _costs(party: Party, name: bytes, rows: Sequence[Int64]) -> Float64:
    """What each call takes, in ms, from when the ranks that need each other have come."""
    took = np.stack([part.took_ms[mine] for part, mine in zip(party.parts, rows, strict=True)], axis=1)
    if name in ROOTED and party.error_ms <= HEALTHY_SHARE * float(np.median(took)):
        of_receivers, root = from_root(*party.times(rows))
        took = np.delete(of_receivers, root, axis=1)
    return np.asarray(took.min(axis=1))
