"""Files the samples of a rank's stack: into which part of the training, and into which step, each one fell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.passes import Passes
from pyddpdiag.analyse.phases import RankPhases
from pyddpdiag.analyse.steps import RankSteps
from pyddpdiag.model.lines import Lines, Stack
from pyddpdiag.trace.layout import CollectiveTime, Records
from pyddpdiag.trace.rows import Bool, Int64

UNKNOWN: Final = "not in the records"
START: Final = "before the first step"
BETWEEN: Final = "between steps"
DATA: Final = "data wait"
BEFORE: Final = "before forward"
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
COMMUNICATION: Final = "communication"
OPTIMIZER: Final = "after backward"
COLLECTIVE: Final = "other collectives"
PHASE: Final = "phases"
END: Final = "after the last step"

PARTS: Final = (
    START,
    DATA,
    BEFORE,
    FORWARD,
    BACKWARD,
    COMMUNICATION,
    OPTIMIZER,
    COLLECTIVE,
    BETWEEN,
    PHASE,
    END,
    UNKNOWN,
)
"""In the order in which a table shows them."""

OWN: Final = (DATA, BEFORE, FORWARD, BACKWARD, OPTIMIZER, BETWEEN)
"""What counts as a rank's own time: in the others it waits, or does what a phase names."""

_NUMBER: Final = {name: number for number, name in enumerate(PARTS)}
_OPEN: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class RankLines:
    """One rank's samples, by time on its own clock.

    Attributes:
        stacks: the different ones; `stack` are indices into them.
        at_ns: when each was taken.
        part: what the rank was doing then: an index into `PARTS`.
        step: in whose own time or all-reduce that was; -1: before the second step that the records know, or after the
            last.
        phase: the program's phase, as a number into `phases`; -1: none.
        interval_ms: the mean time from one to the next, for which it stands.
        missed_ms: how long no look was possible.
    """

    stacks: tuple[Stack, ...]
    at_ns: Int64
    stack: npt.NDArray[np.int32]
    part: npt.NDArray[np.int8]
    step: Int64
    phase: npt.NDArray[np.int16]
    phases: tuple[str, ...]
    interval_ms: float
    missed_ms: float

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.at_ns)

    def of_parts(self, *names: str) -> Bool:
        """Which samples fell into one of these parts."""
        return np.asarray(np.isin(self.part, [_NUMBER[name] for name in names]))


def file_lines(
    lines: Lines, steps: RankSteps, passes: Passes, collectives: Records, phases: RankPhases, *, cut: bool
) -> RankLines:
    """File a rank's samples by its records.

    Args:
        cut: whether older records were overwritten, or not read.
    """
    order = np.argsort(np.array(lines.at_ns, np.int64), kind="stable")
    at = np.array(lines.at_ns, np.int64)[order]
    phase = _phase(at, phases)
    return RankLines(
        stacks=lines.stacks,
        at_ns=at,
        stack=np.array(lines.stack, np.int32)[order],
        part=_parts(at, steps, passes, collectives, phase >= 0, cut),
        step=_steps(at, steps),
        phase=phase,
        phases=phases.names,
        interval_ms=lines.interval_ns / 1e6,
        missed_ms=lines.missed_ns / 1e6,
    )


def _parts(
    at: Int64, steps: RankSteps, passes: Passes, collectives: Records, in_phase: Bool, cut: bool
) -> npt.NDArray[np.int8]:
    part = np.full(len(at), _NUMBER[BETWEEN], np.int8)
    times = [each[each > 0] for each in (steps.wait_begin, steps.begin, passes.begin, steps.finish)]
    begun = min((int(each.min()) for each in times if len(each)), default=_OPEN)
    ends = [each[each > 0] for each in (steps.end, steps.finish, passes.finalize_end)]
    last = max((int(each.max()) for each in ends if len(each)), default=0)

    def put(name: str, where: Bool) -> None:
        part[where] = _NUMBER[name]

    inside = _within(at, steps.begin, _ends(steps.begin, steps.end))
    # Without a mark, a forward pass may have begun anywhere.
    put(BEFORE if (passes.forward_begin > 0).all() else FORWARD, inside)
    put(OPTIMIZER, inside & _after_backward(at, steps, passes))
    put(DATA, _within(at, steps.wait_begin, _ends(steps.wait_begin, steps.begin)))
    put(END, (at >= last) & ~_within(at, *_still_open(steps)))
    put(UNKNOWN if cut else START, at < begun)
    put(FORWARD, _within(at, passes.forward_begin, passes.begin))
    put(COLLECTIVE, _within(at, *_calls(collectives)))
    put(BACKWARD, _within(at, passes.begin, _ends(passes.begin, passes.computed)))
    put(COMMUNICATION, _within(at, passes.computed, _ends(passes.computed, passes.finalize_end)))
    put(PHASE, in_phase)
    return part


def _within(at: Int64, begin: Int64, end: Int64) -> Bool:
    """Which times lie in one of these spans, which may overlap; those whose begin or end is 0 do not count."""
    known = (begin > 0) & (end > begin)
    begun = np.searchsorted(np.sort(begin[known]), at, "right")
    return np.asarray(begun > np.searchsorted(np.sort(end[known]), at, "right"))


def _ends(begin: Int64, end: Int64) -> Int64:
    """Ends of spans; the last one may be open."""
    found: Int64 = end.copy()
    if len(found):
        latest = int(begin.argmax())
        if not found[latest]:
            found[latest] = _OPEN
    return found


def _still_open(steps: RankSteps) -> tuple[Int64, Int64]:
    """The step in which the records end."""
    open_one = (steps.begin > 0) & (steps.end == 0)
    return steps.begin[open_one][-1:], np.full(int(open_one.any()), _OPEN)


def _calls(collectives: Records) -> tuple[Int64, Int64]:
    times = collectives["times"]
    started, ended = times[:, CollectiveTime.STARTED], times[:, CollectiveTime.ENDED]
    return started.astype(np.int64), np.where(ended > 0, ended, _OPEN).astype(np.int64)


def _after_backward(at: Int64, steps: RankSteps, passes: Passes) -> Bool:
    """Which times lie behind the last backward pass of their step."""
    ended = np.sort(passes.finalize_end[passes.finalize_end > 0])
    known = steps.begin > 0
    begin, end = steps.begin[known], _ends(steps.begin, steps.end)[known]
    if not (len(ended) and len(begin)):
        return np.zeros(len(at), np.bool_)
    place = np.clip(np.searchsorted(begin, at, "right") - 1, 0, None)
    so_far = np.searchsorted(ended, at, "right")
    return np.asarray(
        (so_far > np.searchsorted(ended, begin[place], "right"))
        & (so_far >= np.searchsorted(ended, end[place], "right"))
    )


def _steps(at: Int64, steps: RankSteps) -> Int64:
    """A rank's own time of a step begins where its last all-reduce of the step before was over."""
    met = np.flatnonzero(steps.finish > 0)
    found = np.full(len(at), -1, np.int64)
    if not len(met):
        return found
    finish = np.maximum.accumulate(steps.finish[met])
    place = np.searchsorted(finish, at, "left")
    known = (place > 0) & (place < len(finish))
    found[known] = steps.step[met].astype(np.int64)[place[known]]
    return found


def _phase(at: Int64, phases: RankPhases) -> npt.NDArray[np.int16]:
    found = np.full(len(at), -1, np.int16)
    for number in range(len(phases.names)):
        mine = phases.name == number
        end = np.where(phases.end[mine] > 0, phases.end[mine], _OPEN)
        found[_within(at, phases.begin[mine], end)] = number
    return found
