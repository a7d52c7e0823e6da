"""What collectives cost that have a root: not every rank waits in them for every other one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.calls.collectives import Calls, RankCollectives, heaviest
from pyddpdiag.analyse.calls.parties import Party, from_root
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import StepMatrix, other_ms
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
        steps: the judged steps.
        parts: of their ranks.
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
    """What each operation from a root costs each judged step on the receiver that it holds up longest, by name; ms.

    Args:
        every: the process groups, from `calls.parties`.
        steps: the judged steps. A call in a step without an all-reduce counts for the next one that has one.
    """
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
