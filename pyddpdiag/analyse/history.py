"""Steps whose records the ring has overwritten: what is left of them is sums over intervals of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.distinct import in_all
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import StepMatrix, side_by_side
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.trace.layout import HistoryValue, Kind, Records
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64

_SUMS: Final = ("own", "exposed", "data_wait", "collectives", "thread_cpu", "run_delay")


@dataclass(frozen=True, eq=False)
class RankHistory:
    """One rank's intervals before its first whole step of which there are records, in ascending order.

    Attributes:
        first: number of the first step that belongs to each.
        steps, own_steps: how many took place, and of how many the own time is known.
        begin, end: of its steps; ns on the rank's own clock.
        between: from the end of a step to the begin of the next; ns.
        sums: over its steps, by name: `own`, `exposed`, `data_wait`, `collectives`, `thread_cpu`, `run_delay`; ns.
        length: how many steps may belong to each.
    """

    first: Int64
    steps: Int64
    own_steps: Int64
    begin: Int64
    end: Int64
    between: Int64
    sums: Mapping[str, Int64]
    length: int

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self.first)

    def joined(self, length: int) -> RankHistory:
        """The same in intervals of `length` steps, a multiple of today's."""
        if not len(self):
            return self
        first = self.first // length * length
        at = np.flatnonzero(np.diff(first, prepend=-1))
        added = np.maximum(0, self.begin[1:] - self.end[:-1])
        # What lies between two intervals that become one lies between two of its steps.
        inner = np.where(first[1:] == first[:-1], added, 0)
        return RankHistory(
            first[at],
            np.add.reduceat(self.steps, at),
            np.add.reduceat(self.own_steps, at),
            self.begin[at],
            np.maximum.reduceat(self.end, at),
            np.add.reduceat(self.between + np.concatenate([[0], inner]), at),
            {name: np.add.reduceat(values, at) for name, values in self.sums.items()},
            length,
        )


_EMPTY: Final = np.empty(0, np.int64)
_NONE: Final = RankHistory(
    _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, {name: _EMPTY for name in _SUMS}, 1
)
"""Of a rank whose records are all there, or whose recorder kept no sums."""


def rank_history(trace: RankTrace, until_ns: int) -> RankHistory:
    """A rank's intervals that ended by `until_ns`, where its records begin."""
    if not len(trace.of_kind(Kind.HISTORY)):
        return _NONE
    records = _latest(trace.of_kind(Kind.HISTORY))
    times = records["times"]
    kept = (times[:, HistoryValue.END] <= until_ns) & (
        times[:, HistoryValue.BEGIN] <= times[:, HistoryValue.END]
    )
    records, times = records[kept], times[kept]
    limit = np.iinfo(np.int64).max
    wide = {name: np.minimum(records[name], limit).astype(np.int64) for name in ("group", "sequence")}
    return RankHistory(
        first=records["step"].astype(np.int64),
        steps=records["index"].astype(np.int64),
        own_steps=wide["sequence"],
        begin=times[:, HistoryValue.BEGIN].copy(),
        end=times[:, HistoryValue.END].copy(),
        between=wide["group"],
        sums={name: np.maximum(0, times[:, HistoryValue[name.upper()]]) for name in _SUMS},
        length=int(records["module"].max(initial=1)),
    )


def shared_out(seconds: Float64, wanted: Mapping[str, Float64]) -> dict[str, Float64]:
    """What these take of each span, in their order, until nothing of it is left, for they may overlap; NaN: nothing.

    The rest is `blocked`.
    """
    found, left = {}, seconds
    for name, each in wanted.items():
        found[name] = np.asarray(np.clip(np.nan_to_num(each), 0.0, left))
        left = left - found[name]
    return found | {"blocked": left}


def in_parts(history: RankHistory) -> dict[str, Float64]:
    """Seconds of each interval by what they were spent for, as `RankLife` has them for steps; with `between`."""
    names = {"data_wait": "data_wait", "exposed": "exposed", "other": "collectives"}
    names |= {"compute": "thread_cpu", "core": "run_delay"}
    wanted = {name: history.sums[of] / 1e9 for name, of in names.items()}
    took = (history.end - history.begin) / 1e9
    # The sums do not know of phases.
    return shared_out(took, {"between": history.between / 1e9, **wanted, "phase": np.zeros_like(took)})


def _latest(records: Records) -> Records:
    """The records that count, in the order of their steps.

    When intervals become longer, the new records are published before the old ones give way, and those stay until the
    ring takes their slots: of two for the same steps the longer interval counts.
    """
    records = records[(records["index"] > 0) & (records["module"] > 0)]
    records = records[np.argsort(records["step"], kind="stable")]
    longest = records["module"].max(initial=0)
    covered = np.unique(records["step"][records["module"] == longest])
    other = records["module"] != longest
    belongs = records["step"] // max(1, int(longest)) * max(1, int(longest))
    return np.asarray(records[~(other & np.isin(belongs, covered))])


@dataclass(frozen=True, eq=False)
class Past:
    """The intervals that all training ranks have, as a step matrix whose rows are average steps of an interval.

    Attributes:
        steps: [intervals, ranks] in ms per step; `step` is each interval's first.
        usage: what an average step cost the processor.
        counted: steps in each interval.
        length: how many steps may belong to an interval.
    """

    steps: StepMatrix
    usage: UsageMatrix
    counted: Int64
    length: int

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self.counted)

    @property
    def until_step(self) -> int:
        """The last step that the intervals hold."""
        return int(self.steps.step[-1]) + self.length - 1


def past(ranks: Sequence[int], histories: Sequence[RankHistory]) -> Past:
    """The ranks' intervals side by side; no rows where a rank has none."""
    length = max((each.length for each in histories if len(each)), default=1)
    joined = [each.joined(length) for each in histories]
    first = in_all([each.first for each in joined]) if joined else np.empty(0, np.int64)

    def table(values: Sequence[Float64]) -> Float64:
        return side_by_side(
            [(each.first, column) for each, column in zip(joined, values, strict=True)], first
        )

    def mean(name: str) -> Float64:
        return table([each.sums[name] / each.steps / 1e6 for each in joined])

    with np.errstate(invalid="ignore", divide="ignore"):
        own = table([each.sums["own"] / each.own_steps / 1e6 for each in joined])
    wall = table([(each.end - each.begin) / each.steps / 1e6 for each in joined])
    steps = StepMatrix(
        tuple(ranks), first, wall, mean("data_wait"), mean("exposed"), own, mean("collectives")
    )
    unknown = np.full(wall.shape, np.nan)
    counted = table([each.steps.astype(np.float64) for each in joined])
    return Past(
        steps,
        UsageMatrix(mean("thread_cpu"), mean("run_delay"), unknown, unknown, unknown, unknown, unknown),
        counted.min(axis=1).astype(np.int64) if counted.size else np.empty(0, np.int64),
        length,
    )
