"""What each step cost the processor on each rank, and a rank's memory that grows and does not level off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import BLOCKS, NEARLY_ALL, WORTH_A_WORD, Z99
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.model.memory import Memory
from pyddpdiag.trace.layout import Records, UsageValue
from pyddpdiag.trace.rows import Int64

_COLUMNS: Final = {
    "cpu": (UsageValue.THREAD_CPU, 1e6),
    "run_delay": (UsageValue.RUN_DELAY, 1e6),
    "process_cpu": (UsageValue.PROCESS_CPU, 1e6),
    "collector": (UsageValue.COLLECTOR, 1e6),
    "major_faults": (UsageValue.MAJOR_FAULTS, 1.0),
}
_OF_THREAD: Final = ("cpu", "run_delay", "major_faults")
"""Readings of one thread: their difference from another thread's means nothing."""


@dataclass(frozen=True, eq=False)
class RankUsage:
    """One rank's use of the processor by step, in ascending order, as in the `UsageMatrix`; NaN = not known.

    Each value is what was added since the end of the last pass of the step before: it covers the rank's own time
    and its waiting for buckets. `load` is the machine's load average at that moment. `begun_delay_ms`: what the
    thread waited for a core from its begin to the end of the first pass.
    """

    step: Int64
    begun_delay_ms: float
    cpu: Float64
    run_delay: Float64
    process_cpu: Float64
    collector: Float64
    load: Float64
    major_faults: Float64


_NONE: Final = RankUsage(np.empty(0, np.int64), np.nan, **dict.fromkeys([*_COLUMNS, "load"], np.empty(0)))
"""Of a rank without such records."""


@dataclass(frozen=True, eq=False)
class UsageMatrix:
    """The use of the processor in the judged steps: [steps, ranks] float64, as in the `StepMatrix`; NaN = not known.

    `cpu` and `run_delay` are of the thread that runs backward, `process_cpu` and `collector` of its process;
    milliseconds. `load` is the load average of the rank's machine, `major_faults` how many pages of memory that thread
    had to read from a disk. `device` is for how much longer than the host an accelerator computed; ms.
    """

    cpu: Float64
    run_delay: Float64
    process_cpu: Float64
    collector: Float64
    load: Float64
    major_faults: Float64
    device: Float64


def rank_usage(records: Records) -> RankUsage:
    """Differences between one rank's usage records, which are sorted by ticket."""
    if not len(records):
        return _NONE
    # The last record of each step: a step may have several passes.
    steps, last = np.unique(records["step"][::-1], return_index=True)
    records = records[::-1][last]
    readings = records["times"].astype(np.float64)
    readings[records["times"] < 0] = np.nan
    same_thread = np.zeros(len(records), np.bool_)
    same_thread[1:] = records["thread"][1:] == records["thread"][:-1]
    columns = {}
    for name, (column, unit) in _COLUMNS.items():
        added = np.diff(readings[:, column], prepend=np.nan) / unit
        unknown = (added < 0) | (~same_thread if name in _OF_THREAD else np.zeros(len(added), np.bool_))
        columns[name] = np.where(unknown, np.nan, added)
    return RankUsage(
        step=steps.astype(np.int64),
        load=readings[:, UsageValue.LOAD_MILLI] / 1000.0,
        begun_delay_ms=float(readings[0, UsageValue.RUN_DELAY]) / 1e6,
        **columns,
    )


def usual_load(usage: RankUsage) -> float | None:
    """The median load average of a rank's machine; None: not known."""
    known = usage.load[np.isfinite(usage.load)]
    return float(np.median(known)) if len(known) else None


def usage_matrix(
    parts: Sequence[RankUsage], devices: Sequence[tuple[Int64, Float64]], steps: Int64
) -> UsageMatrix:
    """The use of the processor in the judged steps.

    Args:
        devices: the same of their accelerators: steps, and for how much longer than the host it computed in each.
    """
    return UsageMatrix(
        device=side_by_side(devices, steps),
        **{
            name: side_by_side([(part.step, getattr(part, name)) for part in parts], steps)
            for name in (*_COLUMNS, "load")
        },
    )


def in_steps(usage: RankUsage, number: Int64, passes: Float64, after: Float64) -> tuple[Float64, Float64]:
    """The thread's time on a core and its waits for one in each of these steps; ms, NaN: not known.

    A reading is taken at the end of a step's last pass: what came after the pass before, such as an evaluation, belongs
    to the step before. It is shared out by the own time on both sides.

    Args:
        passes: own time in each up to the end of its last pass.
        after: own time after it.
    """
    passes, after = np.maximum(passes, 0.0), np.maximum(after, 0.0)
    follow = number[1:] == number[:-1] + 1
    # Where the step before is not known, it is taken to be as this one.
    ahead = after.copy()
    ahead[1:] = np.where(follow, after[:-1], after[1:])
    whole = passes + ahead
    before = np.divide(ahead, whole, out=np.zeros(len(whole)), where=whole > 0)
    found = []
    for reading in side_by_side([(usage.step, usage.cpu), (usage.step, usage.run_delay)], number).T:
        owed = reading * before
        gets = owed.copy()  # as much as it owes, where nobody knows what comes after its pass
        gets[:-1] = np.where(follow & np.isfinite(owed[1:]), owed[1:], owed[:-1])
        found.append(reading - owed + gets)
    return found[0], found[1]


_BEGINS: Final = (0.0, 0.25, 0.5)
_NO_STEPS: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class Growth:
    """Bytes, and nanoseconds of the rank's clock.

    `since_ns` is from when on it was seen to grow, `per_ns` how fast of late, `workers` the share that its workers have
    of it, `taken` what it takes in the end, `free` what is left then, of `limit`, which may be a `container`'s.
    `steady`: nothing shows that it grows more slowly than before. `ends`: it does so by enough to end before the memory
    is full.
    """

    since_ns: int
    from_begin: bool
    per_ns: float
    workers: float
    taken: int
    free: int
    limit: int
    container: bool
    steady: bool
    ends: bool


def growth(memory: Memory, ended_ns: Int64 = _NO_STEPS) -> Growth | None:
    """How a rank's memory grows; None: it does not, or too little was seen.

    What each step keeps makes it grow by steps, however long they take: so where the ends of the steps are known, it is
    first parts of as many steps that are compared.
    """
    # Of a damaged trace neither need be in order.
    read, ended = np.array(memory.at_ns, np.float64), np.sort(ended_ns)
    rows = np.argsort(read, kind="stable")
    if len(read) < 2 * BLOCKS or np.ptp(read) <= 0.0:
        return None
    found = None
    if len(ended) >= 2 * BLOCKS:
        inside = (read >= ended[0]) & (read <= ended[-1])
        steps = np.arange(len(ended), dtype=np.float64)
        found = _grown(memory, rows[inside[rows]], np.interp(read, ended, steps))
    return found or _grown(memory, rows, read)


def _grown(memory: Memory, rows: Int64, by: Float64) -> Growth | None:
    """In these of the readings; `by`: steps or time at each of all."""
    if len(rows) < 2 * BLOCKS:
        return None
    at, read = by[rows], np.array(memory.at_ns, np.float64)[rows]
    own, workers = np.array(memory.own, np.float64)[rows], np.array(memory.workers, np.float64)[rows]
    for begin in _BEGINS:
        since = at[0] + begin * (at[-1] - at[0])
        levels = _levels(at, own + workers, since)
        if levels is None or not (np.diff(levels) > 0).all():
            continue
        free = memory.free[-1]
        if levels[-1] - levels[0] < WORTH_A_WORD * free:
            return None
        unsure = _unsure(levels)
        steady, further = _goes_on(levels, unsure)
        of_workers = _levels(at, workers, since)
        grown = 0.0 if of_workers is None else of_workers[-1] - of_workers[0]
        when = _levels(at, read, since)
        assert when is not None  # there are as many
        half, width = BLOCKS // 2, (at[-1] - since) / BLOCKS
        still = int(np.argmax(levels - levels[0] > unsure)) - 1
        return Growth(
            int(read[np.searchsorted(at, since + still * width)]),
            begin == still == 0,
            float((levels[-1] - levels[half]) / (when[-1] - when[half])),
            float(np.clip(grown / (levels[-1] - levels[0]), 0.0, 1.0)),
            memory.own[-1] + memory.workers[-1],
            free,
            memory.limit,
            memory.container,
            steady,
            further < free,
        )
    return None


def lasting(growths: Mapping[int, Growth]) -> dict[int, Growth]:
    """Of the ranks whose memory grows, those where it does until none is left.

    Ranks do alike: where steps become longer, chance decides whose growth seems to end.
    """
    most = max((one.per_ns for one in growths.values() if not one.ends), default=inf)
    return {rank: one for rank, one in growths.items() if not one.ends or one.per_ns >= NEARLY_ALL * most}


def _levels(at: Float64, values: Float64, since: float) -> Float64 | None:
    """The medians of the blocks; None: one has no reading."""
    edges = np.linspace(since, at[-1], BLOCKS + 1)
    block = np.clip(np.searchsorted(edges, at, "right") - 1, -1, BLOCKS - 1)
    parts = [values[block == number] for number in range(BLOCKS)]
    return np.array([np.median(part) for part in parts]) if all(map(len, parts)) else None


def _unsure(levels: Float64) -> float:
    """How much two levels may differ by chance.

    The noise of a level comes from second differences, as a smooth curve has next to none of them (Gasser, Sroka and
    Jennen-Steinmetz, Biometrika 1986).
    """
    return float(Z99 * np.sqrt(2.0 * (np.diff(levels, 2) ** 2).mean() / 6.0))


def _goes_on(levels: Float64, unsure: float) -> tuple[bool, float]:
    """Whether nothing shows that it slows down, and how much further it will grow if each half of the time adds as much
    less than the one before as the second half did: the sum of a geometric series.
    """
    half = BLOCKS // 2
    first, second = levels[half - 1] - levels[0], levels[-1] - levels[half]
    ratio = (second + unsure) / max(first - unsure, 1.0)
    if ratio >= 1.0:
        return True, float("inf")
    return False, float((second + unsure) * half / (half - 1) * ratio / (1.0 - ratio))
