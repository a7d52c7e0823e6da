"""What holds only in a part of a run: stretches over a threshold, and those in which all ranks need longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.chance import at_least
from pyddpdiag.analyse.core_waits import load_per_core
from pyddpdiag.analyse.episodes import ExtraTime, waits_per_cpu
from pyddpdiag.analyse.grouped import Float64, median_at_most, sure_median
from pyddpdiag.analyse.step_matrix import StepMatrix, lower_median, median, step_walls
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.model.findings import Cause, Confidence
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.rows import Bool, Int64


@dataclass(frozen=True)
class Span:
    """Rows of a step matrix, `begin` to before `end`; `lasting`: up to the run's end."""

    begin: int
    end: int
    lasting: bool

    def __len__(self) -> int:
        """Number of rows."""
        return self.end - self.begin

    @property
    def rows(self) -> slice:
        """The rows as an index."""
        return slice(self.begin, self.end)


@dataclass(frozen=True)
class Stretches:
    """The parts of a run in which something holds, at least one, in their order; `whole`: all of the run is."""

    spans: tuple[Span, ...]
    whole: bool = False

    @property
    def rows(self) -> Int64:
        """All their rows of the step matrix, as an index."""
        return np.concatenate([np.arange(span.begin, span.end) for span in self.spans])

    def between(self, step: Int64) -> tuple[int, int | None]:
        """The first and the last step, given the number of each row's; None: it lasts to the run's end."""
        last = self.spans[-1]
        return int(step[self.spans[0].begin]), None if last.lasting else int(step[last.end - 1])

    def words(self, step: Int64) -> str:
        """` from step 120 on`, ` in steps 120 to 180`, or several of these; nothing of the whole run."""
        if self.whole:
            return ""
        said = [f"in steps {step[span.begin]} to {step[span.end - 1]}" for span in self.spans]
        if self.spans[-1].lasting:
            said[-1] = f"from step {step[self.spans[-1].begin]} on"
        if len(said) > bounds.SEVERAL:
            since, until = self.between(step)
            when = f"from step {since} on" if until is None else f"between step {since} and step {until}"
            return f" in {len(said)} stretches {when}"
        return " " + " and ".join([", ".join(said[:-1])] * (len(said) > 1) + said[-1:])

    def evidence(self, values: Float64, name: str) -> dict[str, float | int | None]:
        """What a finding about these stretches says: what was usual before them and after, in ms, and how many there
        are; nothing of the whole run."""
        if self.whole:
            return {}
        first, last = self.spans[0], self.spans[-1]
        before, after = (median(part) for part in (values[: first.begin], values[last.end :]))
        return {
            f"{name}_before_ms": None if np.isnan(before) else before,
            f"{name}_after_ms": None if np.isnan(after) else after,
            "stretches": len(self.spans),
        }


def all_of(rows: int) -> Stretches:
    """The whole of a run of so many rows."""
    return Stretches((Span(0, rows, True),), whole=True)


def stretches(excess: Float64, series: int = 1) -> Stretches | None:
    """All stretches of steps that are over a threshold and too long for chance; None: there is none.

    The stretches are the maximal scoring subsequences of Ruzzo and Tompa (1999): a step over the threshold scores the
    logarithm of how much likelier it is in a stretch than by chance, another one that of the opposite. Where the median
    is just at the threshold, a step is over it with a probability of 1/2, so k of m steps in a row have a binomial
    probability; times the steps at which they may begin and the series, it must be below `CHANCE`. Of 59 steps and
    2 ranks 14 in a row are.

    Args:
        excess: by how much each step is over the threshold, below 0: it is not; NaN: not known, and not over it.
        series: how many series (ranks) are looked at in this way.
    """
    over = np.nan_to_num(excess, nan=-1.0) > 0
    tries = len(over) * series
    found = (Span(begin, end, len(over) - end <= bounds.TWICE) for begin, end in _maximal(over))
    return joined(
        _trimmed(span, excess)
        for span in found
        if tries * at_least(int(np.count_nonzero(over[span.rows])), len(span), 0.5) < bounds.CHANCE
    )


def _trimmed(span: Span, excess: Float64) -> Span:
    """The stretch without steps at its ends that are over the threshold by less than half of what is usual in it.

    Noise before and after a change reaches the threshold, too. A lasting one still lasts to the run's end.
    """
    much = excess[span.rows] >= 0.5 * median(excess[span.rows])
    end = span.end if span.lasting else span.begin + int(np.flatnonzero(much)[-1]) + 1
    return Span(span.begin + int(much.argmax()), end, span.lasting)


def joined(spans: Iterable[Span]) -> Stretches | None:
    """These stretches; None: there is none."""
    found = tuple(spans)
    return Stretches(found) if found else None


def by_window(values: Float64) -> Float64:
    """The median of each window, once per row; the rows after the last whole window take its value."""
    count = len(values) // bounds.WINDOW
    if not count:
        return np.full(len(values), np.nan)
    middle = np.nanmedian(_known(values[: count * bounds.WINDOW].reshape(count, bounds.WINDOW)), axis=1)
    return np.asarray(middle[np.minimum(np.arange(len(values)) // bounds.WINDOW, count - 1)])


def _maximal(over: Bool) -> list[tuple[int, int]]:
    """The maximal scoring subsequences, as begin and end; in linear time."""
    above, below = log(bounds.NEARLY_ALL / 0.5), log((1.0 - bounds.NEARLY_ALL) / 0.5)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], over.astype(np.int8), [0]])))
    # Of each: begin, end, the score before and after it, and the place of the last one that begins at a lower score.
    found: list[tuple[int, int, float, float, int]] = []
    score, done = 0.0, 0
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        score += below * (begin - done)
        left, right = score, score + above * (end - begin)
        score, done, first = right, end, begin
        while True:
            lower = _lower(found, left)
            if lower < 0 or found[lower][3] >= right:
                break
            first, left = found[lower][0], found[lower][2]
            del found[lower:]
        found.append((first, end, left, right, lower))
    return [(begin, end) for begin, end, *_ in found]


def _lower(found: list[tuple[int, int, float, float, int]], score: float) -> int:
    """The place of the last one that begins at a lower score; -1: there is none."""
    place = len(found) - 1
    while place >= 0 and found[place][2] >= score:
        # Those between begin at no lower score than this one.
        place = found[place][4]
    return place


def _known(rows: Float64) -> Float64:
    """Windows of which nothing is known count as endless: numpy warns of them otherwise."""
    unknown: Bool = np.all(np.isnan(rows), axis=1)
    return np.where(unknown[:, None], np.inf, rows)


@dataclass(frozen=True, eq=False)
class Slower:
    """All ranks are slower in some parts of the run.

    Attributes:
        span: the parts.
        own_ms: what the fastest rank needs in each step for its own part, without its wait for data.
        inside: whether a step belongs to the parts.
        time_ms: what all the steps took.
        rows: of the step matrix, those that it was looked for in: every rank's own time is known there.
        by_core: without what the ranks wait for a core, there are no such parts.
        extra: what the difference is spent for.
        load: the load average of the busiest host for each core that its ranks may use, in the parts; None: not known.
    """

    span: Stretches
    own_ms: Float64
    inside: Bool
    time_ms: float
    rows: Int64
    by_core: bool
    extra: ExtraTime = field(default_factory=ExtraTime)
    load: float | None = None

    @cached_property
    def there_ms(self) -> float:
        """What is typical in the parts."""
        return median(self.own_ms[self.inside])

    @cached_property
    def usual_ms(self) -> float:
        """What is typical in the rest."""
        return median(self.own_ms[~self.inside])

    @property
    def times(self) -> float:
        """How many times as long a step's own part takes there."""
        return self.there_ms / self.usual_ms

    @property
    def lost_ms(self) -> float:
        """What the parts cost in all."""
        return float((self.own_ms[self.inside] - self.usual_ms).sum())

    @property
    def share(self) -> float:
        """The same of the time of all the steps."""
        return self.lost_ms / self.time_ms if self.time_ms > 0 else 0.0

    @property
    def grows(self) -> bool:
        """Whether the ranks become slower bit by bit, and not at once: on either side of the change, too."""
        if len(self.span.spans) > 1:
            return False
        for part in (self.own_ms[self.inside], self.own_ms[~self.inside]):
            third = len(part) // 3
            if median(part[-third:]) - median(part[:third]) < bounds.LARGE_SHARE * (
                self.there_ms - self.usual_ms
            ):
                return False
        return True

    @property
    def cause(self) -> Cause | None:
        """What the ranks do in the time that they need more; None: the trace does not tell."""
        found = self.extra.cause
        # What is left beside the wait is no change by itself.
        return None if found == "blocked" and self.by_core else found

    @property
    def confidence(self) -> Confidence:
        """`low` where other programs on the machine may have made it."""
        if self.cause in ("blocked", "device"):
            return "medium"
        if self.cause == "core":
            return "low"
        # Processor time grows with other load, too, as caches and cores are shared.
        return "medium" if (self.extra.cpu_times or self.times) > bounds.SHARED_TIMES else "low"


def slower(steps: StepMatrix, usage: UsageMatrix, sidecars: Mapping[int, Sidecar]) -> Slower | None:
    """The parts of the run in which all ranks are slower; None: there is none.

    Otsu's threshold (1979) finds two levels in the logarithm of running medians; the parts are the
    stretches over it. There must be a window of steps on either side.
    """
    rows = np.flatnonzero(~np.isnan(steps.own).any(axis=1))
    if not steps.can_judge or len(rows) < 2 * bounds.WINDOW:
        return None
    own = steps.own[rows] - np.nan_to_num(steps.data_wait[rows])
    wall = step_walls(steps)[rows]
    # What the ranks wait for a core is other programs' as a rule, and hides what changes in the training.
    of_itself = _change(own - np.nan_to_num(usage.run_delay[rows]), wall, rows, by_core=False)
    found = of_itself or _change(own, wall, rows, by_core=True)
    if found is None:
        return None
    inside = found.inside
    cpu = _levels(usage.cpu[rows], inside)
    # Without what they wait for a core, nothing of the difference is that.
    delay = _levels(usage.run_delay[rows] * (0.0 if of_itself else 1.0), inside)
    device = _levels(usage.device[rows], inside)
    others = _levels((usage.process_cpu - usage.cpu)[rows], inside)
    more = found.there_ms - found.usual_ms

    def part(levels: tuple[float, float] | None) -> float | None:
        return None if levels is None else (levels[0] - levels[1]) / more

    return replace(
        found,
        extra=ExtraTime(
            device=part(device),
            cpu=part(cpu),
            core=part(delay),
            # Helper threads may do the work while the one that runs backward waits for them.
            threads=part(others),
            waits_per_cpu=waits_per_cpu((cpu[0], delay[0]), (cpu[1], delay[1])) if cpu and delay else 0.0,
            cpu_times=None if cpu is None or not cpu[1] > 0 else cpu[0] / cpu[1],
        ),
        load=max(load_per_core(steps, usage, sidecars, rows[inside]).values(), default=None),
    )


def _change(ranks: Float64, wall: Float64, rows: Int64, *, by_core: bool) -> Slower | None:
    """The parts in which the fastest rank is slower; a rank that is slow alone is late.

    Args:
        ranks: what each needs in each step; ms, [steps, ranks].
        wall: what each step took; ms.
    """
    own = np.maximum(ranks, 0.0).min(axis=1)
    near = _running_median(own)
    threshold = _two_levels(near)
    if threshold is None:
        return None
    span = stretches(near - threshold)
    if span is None:
        return None
    inside = np.zeros(len(own), np.bool_)
    inside[span.rows] = True
    there, rest = own[inside], own[~inside]
    if (
        len(there) < bounds.WINDOW
        or len(rest) < bounds.WINDOW
        or np.mean(rest > threshold) > bounds.LARGE_SHARE
    ):
        return None
    found = Slower(span, own, inside, float(np.fmax(wall, own).sum()), rows, by_core)
    if (
        not found.usual_ms > 0
        or found.there_ms - found.usual_ms < bounds.LEAST_MS
        or found.there_ms < (1 + bounds.LARGE_SHARE) * found.usual_ms
        or sure_median(there) < (1 + bounds.HEALTHY_SHARE) * median_at_most(rest)
        or found.share < bounds.HEALTHY_SHARE
    ):
        return None
    return found


def _running_median(values: Float64) -> Float64:
    around = np.pad(values, bounds.NEAR // 2, mode="edge")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(around, bounds.NEAR), axis=1))


def _two_levels(values: Float64) -> float | None:
    """The threshold that splits the values best into two levels of at least a window each; None: they are all alike."""
    # Without their waits for a core, short parts are near 0, where logarithms would be all of the difference.
    ordered = np.log(np.maximum(np.sort(values), bounds.LEAST_MS))
    count = len(ordered)
    low = np.arange(bounds.WINDOW, count - bounds.WINDOW + 1)
    total = np.cumsum(ordered)
    apart = total[low - 1] / low - (total[-1] - total[low - 1]) / (count - low)
    between = low * (count - low) * apart**2
    best = int(low[int(between.argmax())])
    first, second = float(np.median(ordered[:best])), float(np.median(ordered[best:]))
    return float(np.exp((first + second) / 2)) if second - first >= np.log(1 + bounds.LARGE_SHARE) else None


def _levels(values: Float64, inside: Bool) -> tuple[float, float] | None:
    """What is typical of the ranks in these parts and in the rest; None: too little is known."""
    typical = lower_median(values)
    known = ~np.isnan(typical)
    if min(np.count_nonzero(known & inside), np.count_nonzero(known & ~inside)) < bounds.WINDOW // 2:
        return None
    return median(typical[inside]), median(typical[~inside])
