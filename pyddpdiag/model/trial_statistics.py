"""What blocks of a trial say: a cure's step beside today's, with an interval, and whether the best is known.

Pure Python, for the ranks that decide and for what shows the result. `bench/intervals.py` resamples rounds; with the
6 to 12 pairs of a trial a bootstrap is too sure, so here the interval is exact: Hodges and Lehmann's estimate with the
interval of Wilcoxon's signed ranks (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3.2 and 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist, median
from typing import Final

from pyddpdiag.model.paired import MARGIN
from pyddpdiag.model.trial import TODAY, Block, CureResult, TriedCure

FEWEST_PAIRS: Final = 6
"""With fewer there is no 95% interval: all of 5 pairs agree by chance in 1 of 16 cases."""

LEVEL: Final = 0.95
_FALSE_GAIN: Final = 1 - LEVEL
"""The chance over a whole trial, with all its looks and cures, that one which is worth nothing is called faster."""
_FIRST_LOOK: Final = 1 / 3
"""The part of that chance which the first look may spend."""
_LATER_LOOKS: Final = 6
"""Each time when twice as many pairs are there, up to `MOST_BLOCKS`, and at the end of the time."""

ENOUGH_TO_LEAVE: Final = 4
"""A cure that is slower in all of so many blocks gets no more turns. By chance: in 1 of 16 cases against today's
setting, in 1 of 70 against another cure."""

WORTH: Final = 0.995
"""A cure is kept only if its whole interval is below this part of today's step: less is not worth a change."""

TOO_SLOW: Final = 1.10
"""A cure with two blocks in a row that take so much longer than each of today's around them is left, unless most of its
blocks are faster."""

FAR_TOO_SLOW: Final = 2.0
"""After one block that takes so much longer than each of today's so far. Noise alone does not double the median of a
block: on two cores that two other programs shared, the slowest of 38 blocks of one setting took 1.4 times their
median."""

_AROUND: Final = 5  # blocks: every second one is of today's setting

_EXACT: Final = 25
"""Above so many pairs the distribution of signed ranks is the normal one to within one rank."""


@dataclass(frozen=True)
class Choice:
    """Which setting to keep.

    `name`: the best one, by what is known. `could_lose`: the part of today's step that another choice might save, at
    most. `sure`: whether that is little enough to stop.
    """

    name: str
    could_lose: float
    sure: bool


def beside(blocks: Sequence[Block], today: Sequence[Block]) -> list[tuple[Block, float]]:
    """Each measured block with the step of today's setting beside it: the geometric mean of the nearest ones before
    and after.

    A drift by so much per cent in each block cancels out in it. A block that has no measured neighbour is left out.
    """
    measured = {each.order: each.step_s for each in today if each.step_s}
    found = []
    for block in blocks:
        before = [order for order in measured if order < block.order]
        after = [order for order in measured if order > block.order]
        near = [
            measured[order] for order in ([max(before)] if before else []) + ([min(after)] if after else [])
        ]
        steps = [step for step in near if step]
        if block.step_s and steps:
            found.append((block, math.prod(steps) ** (1 / len(steps))))
    return found


_NEIGHBOURS: Final = math.sqrt(4 / 3)
"""Two pairs in a row share a block of today's setting: where blocks vary alike, the mean of pairs has 4/3 of the
variance that independent ones would have."""


def fewest_pairs(cures: int) -> int:
    """With how many pairs of each a trial of so many cures is looked at first: by chance, all of them agree rarely
    enough."""
    return max(FEWEST_PAIRS, math.ceil(math.log2(max(1, cures) / (_FALSE_GAIN * _FIRST_LOOK))))


def beyond(pairs: int, cures: int) -> float:
    """The chance that the truth lies above the interval of a look, and as much that it lies below.

    Who looks again and again, and stops at the first gain, finds one by chance in 15 to 20% of trials if each look has
    a 95% interval of its own. So the looks share 5%, spent as the trial goes on (Lan and DeMets: Discrete sequential
    boundaries for clinical trials, Biometrika 70, 1983), and the cures share each part (Bonferroni).
    """
    each = _FALSE_GAIN / max(1, cures)
    if pairs <= fewest_pairs(cures):
        return each * _FIRST_LOOK
    normal = NormalDist()
    wider = _NEIGHBOURS * normal.inv_cdf(1 - each * (1 - _FIRST_LOOK) / _LATER_LOOKS)
    # While only a few pairs more are there, the widest interval that they have.
    return max(1 - normal.cdf(wider), 0.5**pairs)


def compare(blocks: Sequence[Block], today: Sequence[Block], cures: int = 1) -> CureResult | None:
    """A cure's result from its blocks and today's; None: no block has a measured neighbour.

    Args:
        blocks: of the cure.
        today: of today's setting.
        cures: how many take turns in the trial.
    """
    pairs = beside(blocks, today)
    if not pairs:
        return None
    steps = [block.step_s or 0.0 for block, _ in pairs]
    beside_them = [step for _, step in pairs]
    logs = [math.log(ours / theirs) for ours, theirs in zip(steps, beside_them, strict=True)]
    middle, low, high = pseudo_median(logs, beyond(len(pairs), cures))
    today_s = median(beside_them)
    exposed = [block.exposed_s for block, _ in pairs if block.exposed_s is not None]
    ratio = math.exp(middle)
    return CureResult(
        pairs=len(pairs),
        step_s=median(steps),
        today_s=today_s,
        ratio=ratio,
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        saved_s=(1 - ratio) * today_s,
        exposed_s=median(exposed) if exposed else None,
    )


def with_result(cure: TriedCure, today: TriedCure, cures: int = 1) -> TriedCure:
    """The cure with the result of all its blocks. `cures`: as in `compare`."""
    return replace(cure, result=compare(cure.blocks, today.blocks, cures))


def pseudo_median(
    values: Sequence[float], tail: float = (1 - LEVEL) / 2
) -> tuple[float, float | None, float | None]:
    """Hodges and Lehmann's estimate of the middle, and its interval.

    Args:
        values: one at least.
        tail: the chance that the truth lies above the interval, and as much that it lies below.

    Returns:
        The median of the means of all pairs of values, and the interval; None, None: there are too few values for one.
    """
    means = sorted((a + b) / 2 for at, a in enumerate(values) for b in values[at:])
    if 0.5 ** len(values) > tail:
        return median(means), None, None
    outside = _outside(len(values), tail)
    return median(means), means[outside], means[len(means) - 1 - outside]


def is_too_slow(block: Block, today: Sequence[Block]) -> bool:
    """Whether a block takes longer than its cure may, unless noise did it.

    Beside the slowest of the blocks of today's setting around it, up to three before it: where these differ much, a
    cure's may as well.
    """
    near = [each for each in today if -_AROUND <= each.order - block.order <= 1]
    return _is_slower(block, near, TOO_SLOW)


def costs_too_much(blocks: Sequence[Block], today: Sequence[Block]) -> bool:
    """Whether a cure is to be left for what its latest blocks took.

    Any one block may be slow on a busy machine. So it takes two in a row, which lie seconds apart with today's setting
    between them, or one that is slower than noise makes it. Never where most of its blocks were faster. A slow cure
    costs little: a block has a fixed number of passes, and one or two of them show it.

    Args:
        blocks: of the cure, in order, with their neighbours measured.
        today: all blocks of today's setting.
    """
    found = ratios(blocks, today)
    if not found or median(found) <= 1:
        return False
    if _is_slower(blocks[-1], today, FAR_TOO_SLOW):
        return True
    return len(blocks) > 1 and all(is_too_slow(each, today) for each in blocks[-2:])


def _is_slower(block: Block, today: Sequence[Block], times: float) -> bool:
    steps = [each.step_s for each in today if each.step_s is not None]
    return block.step_s is not None and bool(steps) and block.step_s > times * max(steps)


def ratios(blocks: Sequence[Block], today: Sequence[Block]) -> list[float]:
    """Of each block's step to that of today's setting beside it."""
    return [(block.step_s or 0.0) / step for block, step in beside(blocks, today)]


def slower_in_all(ours: Sequence[float], theirs: Sequence[float] | None = None) -> bool:
    """Whether each of at least `ENOUGH_TO_LEAVE` ratios is above 1, or above each of as many of another cure."""
    if len(ours) < ENOUGH_TO_LEAVE or (theirs is not None and len(theirs) < ENOUGH_TO_LEAVE):
        return False
    return min(ours) > (1.0 if theirs is None else max(theirs))


def choose(results: Mapping[str, CureResult | None]) -> Choice:
    """The setting to keep, by what is known of the cures that were not left.

    A cure is chosen only if its whole interval is below `WORTH`: where nothing shows a gain, today's setting stays.

    Args:
        results: of each cure by its name.
    """
    lows = {name: one.low if one is not None else None for name, one in results.items()}
    # At most what each setting may cost; today's costs 1 by definition.
    most = {TODAY: 1.0} | {
        name: one.high
        for name, one in results.items()
        if one is not None and one.high is not None and one.high < WORTH
    }

    def could_lose(name: str) -> float:
        others = [low if low is not None else 0.0 for other, low in lows.items() if other != name]
        if name != TODAY:
            others.append(1.0)
        return max(0.0, most[name] - min(others, default=1.0))

    best = min(most, key=lambda name: (could_lose(name), most[name]))
    return Choice(best, could_lose(best), could_lose(best) <= MARGIN)


@cache
def _outside(count: int, tail: float) -> int:
    """How many of the sorted means of pairs lie below the interval, and how many above."""
    if count > _EXACT:
        spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return int(count * (count + 1) / 4 - NormalDist().inv_cdf(1 - tail) * spread) - 1
    # ways[t]: subsets of the ranks 1 to count with the sum t, by which the signed-rank statistic is distributed.
    ways = [1] + [0] * (count * (count + 1) // 2)
    for rank in range(1, count + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    allowed, below, outside = tail * 2**count, 0, 0
    for total, number in enumerate(ways):
        below += number
        if below > allowed:
            break
        outside = total
    return outside


__all__ = [
    "ENOUGH_TO_LEAVE",
    "FAR_TOO_SLOW",
    "FEWEST_PAIRS",
    "TOO_SLOW",
    "WORTH",
    "Choice",
    "beside",
    "beyond",
    "choose",
    "compare",
    "costs_too_much",
    "fewest_pairs",
    "is_too_slow",
    "pseudo_median",
    "ratios",
    "slower_in_all",
    "with_result",
]
