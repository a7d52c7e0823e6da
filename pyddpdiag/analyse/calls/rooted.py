"""What collectives cost that have a root: not every rank waits in them for every other one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import SEVERAL
from pyddpdiag.analyse.calls.collectives import Calls, RankCollectives, heaviest, whole_rows
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.progress import Progress
from pyddpdiag.analyse.step_matrix import StepMatrix, other_ms
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.rows import Int64
from pyddpdiag.trace.run import Run

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


def rooted_ms(
    every: Sequence[Party],
    reached: Sequence[Progress],
    clocks: Sequence[ClockOffset],
    run: Run,
    steps: StepMatrix,
) -> dict[bytes, Float64]:
    """What each operation from a root costs each judged step on the receiver that it holds up longest, by name; ms.

    That is a receiver's end less the later of its own begin and the root's: before that one waited for the other. No
    record names the root; it is the rank that spends least time in the calls.

    Args:
        every: the process groups, from `calls.parties`.
        reached: how far each rank has come.
        clocks: of the ranks.
        run: the ranks.
        steps: the judged steps. A call in a step without an all-reduce counts for the next one that has one.
    """
    found: dict[bytes, Float64] = {}
    for party in every:
        known = all(reached[who].complete and clocks[who].uncertainty_ns is not None for who in party.members)
        if len(party.members) < 2 or not known:
            continue
        ranks = [run.ranks[who].rank for who in party.members]
        mine = [place for place, rank in enumerate(ranks) if rank in steps.place_of]
        outside = steps.other[:, [steps.place_of[ranks[place]] for place in mine]]
        for name in FROM_ROOT:
            calls = _calls(party, name, clocks)
            if calls is None:
                continue
            step, begun, ended = calls
            root = int((ended - begun).sum(axis=0).argmin())
            took = np.maximum(0, ended - np.maximum(begun, begun[:, root, None])) / 1e6
            error_ms = max(clocks[who].uncertainty_ns or 0 for who in party.members) / 1e6
            took = np.maximum(0.0, took - error_ms)
            took[:, root] = 0.0
            # What goes on beside a backward pass holds up nobody.
            of_step = np.fmin(_by_step(step, took[:, mine], steps.step), outside).max(axis=1, initial=0.0)
            found[name] = np.maximum(found.get(name, np.zeros(len(of_step))), of_step)
    return found


def _calls(party: Party, name: bytes, clocks: Sequence[ClockOffset]) -> tuple[Int64, Int64, Int64] | None:
    """Step, begin and end of each call, [calls] and [calls, members]; None: they cannot be paired."""
    rows = [whole_rows(part, name) for part in party.parts]
    if len({len(each) for each in rows}) != 1 or len(rows[0]) < SEVERAL:
        return None
    offsets = np.array([clocks[who].offset_ns for who in party.members])
    begun, ended = (
        np.stack([getattr(part, column)[at] for part, at in zip(party.parts, rows, strict=True)], axis=1)
        + offsets
        for column in ("begun", "ended")
    )
    return party.parts[0].step[rows[0]].astype(np.int64), begun, ended


def _by_step(step: Int64, took: Float64, steps: npt.NDArray[np.int64]) -> Float64:
    """The sums of the calls by judged step, on each member."""
    sums = np.zeros((len(steps), took.shape[1]))
    at = np.searchsorted(steps, step)
    # What comes before the first judged step is a warm-up.
    counts = (at < len(steps)) & (step > (steps[0] - 1 if len(steps) else 0))
    np.add.at(sums, at[counts], took[counts])
    return sums
