"""Which setting of a trial comes next, for how many passes, and when it is over. Without torch, in any kind of time.

The trial is a race (successive elimination: Even-Dar, Mannor, Mansour, JMLR 7, 2006). In each round, today's setting
and the cures that are still in it have a block each; today's serves all comparisons. Who surely cannot win leaves,
and the race ends when nobody else could win by what matters. Where the noise is too large for that, the time is halved
among fewer and fewer (sequential halving: Karnin, Koren, Somekh, ICML 2013): those who pause have not lost.

The order is drawn, and every second round takes it backwards: a steady drift cancels out, and a setting that is on
twice in a row needs no change.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from pyddpdiag.cures.trial_intervals import Comparison, Ratio, reach
from pyddpdiag.model.tried import MARGIN, MOST_BLOCKS, TODAY, Block, Keep, TrialState, Tried, TriedCure
from pyddpdiag.model.words import count, listed, percent, seconds

UNCOUNTED: Final = 2
"""The first passes after a change: DDP rebuilds its buckets in the second one."""

CHANCE: Final = 0.05
"""That any interval of a cure ever misses the truth, in the whole trial; the cures share it (Bonferroni)."""

WORTH: Final = 0.995
"""A cure is kept only if its whole interval is below this part of today's step: less is not worth a change."""

FAR_TOO_SLOW: Final = 2.0
"""A cure whose first block takes so much longer than each of today's leaves at once. Noise alone does not double the
median of a block: on two cores that two other programs shared, the slowest of 38 blocks of one setting took 1.4 times
their median."""

GAIN: Final = 0.1
"""For a gain of this part of a step it is said how long a trial takes."""

_FIRST_PASSES: Final = 4
_BLOCK_S: Final = 0.4
_MOST_PASSES: Final = 200
_CALM: Final = 0.05
"""Where passes differ by less, one of them is as good as the median of a few."""
_NOISY_PASSES: Final = 3
_LEAST_NOISE: Final = 0.02
"""Blocks differ by so much even where passes hardly do."""
_ROUNDS: Final = 12
"""Blocks are so short that so many rounds of all settings fit."""
_LOOK_EVERY: Final = 16
"""After so many rounds, it is looked only once in so many parts of them."""
_FEWEST_ROUNDS: Final = 3
"""With fewer, nothing is said of a cure."""


@dataclass(frozen=True)
class Turn:
    """A setting for so many counted passes, after some that are not counted; `over`: for good."""

    name: str
    passes: int
    uncounted: int = 0
    over: bool = False


class Schedule:
    """The turns of one trial.

    Args:
        tried: its settings, and the time that it may take; a cure with `left` set gets no turn.
        keep: whether the training goes on with the best.
        seed: of the order.
        step_s: of today's setting, as far as it is known.
        start_s: what a block takes that is a start of its own; 0: blocks are passes.
    """

    def __init__(self, tried: Tried, keep: Keep, seed: int, step_s: float, start_s: float = 0.0) -> None:
        self._tried, self._keep = tried, keep
        self._limit_s = 60 * tried.minutes
        self._step_s, self._start_s = step_s, start_s
        self._settings = {TODAY: tried.today} | {each.name: each for each in tried.cures}
        self._number = 1  # of the cures that take turns
        self._sizes = [1]
        self._random = random.Random(seed)
        self._order: list[str] = []
        self._queue: list[str] = []
        self._backwards = True
        self._settled = True  # what is on has had a block, or was on before the trial
        self._noise: float | None = None
        self._begun_s = 0.0  # of the first block
        self._said_s = 0.0  # how long it takes
        self.round = -1
        """Of the next block."""
        self.blocks = 0
        """That were measured."""

    @property
    def is_over(self) -> bool:
        """Whether it has been ended."""
        return self._tried.state != "running"

    def tried(self) -> Tried:
        """All of it, as it stands now."""
        today, *cures = self._settings.values()
        return replace(self._tried, today=today, cures=tuple(cures))

    def measured(self, name: str, block: Block) -> None:
        """A block of a setting is over."""
        self.blocks += 1
        had = self._settings[name]
        self._settings[name] = replace(had, blocks=(*had.blocks, block))
        today = self._settings[TODAY].blocks
        if name == TODAY:
            self._step_s = block.step_s
            if self._noise is None and block.spread:
                self._noise = max(_LEAST_NOISE, block.spread / math.sqrt(max(1, block.passes)))
        elif not had.blocks and today and block.step_s > FAR_TOO_SLOW * max(each.step_s for each in today):
            self._leave(name, f"its block took {block.step_s / today[-1].step_s:.2g} times today's step")

    def failed(self, name: str, why: str) -> None:
        """A setting could not be put on, or told nothing: a cure leaves; the ranks have today's again."""
        if name != TODAY:
            self._leave(name, why)
        kept = TODAY if self._tried.kept == name else self._tried.kept
        self._tried, self._settled = replace(self._tried, now=TODAY, kept=kept), False

    def next(self, took_s: float) -> Turn:
        """The next turn, so many seconds after the trial's begin."""
        self._tried = replace(self._tried, took_s=took_s)
        self._begun_s = self._begun_s if self.blocks else took_s
        self._queue = [name for name in self._queue if not self._settings[name].left]
        if not self._queue:
            if self._judge():
                tried = any(each.blocks for each in self._settings.values())
                return self._end("decided", "" if tried else "No cure can be tried on this module.")
            self.round += 1
            self._queue = self._drawn()
        if took_s + self._block_s() > self._limit_s or self.blocks >= MOST_BLOCKS:
            return self._end("time_over")
        name = self._queue.pop(0)
        changes = name != self._tried.now or not self._settled
        self._tried, self._settled = replace(self._tried, now=name), True
        return Turn(name, self._passes(), UNCOUNTED if changes else 0)

    def expected(self) -> str:
        """How long it takes to show a gain of 10%, and what fits into the time, in a sentence or two.

        Before the first block, after it, and when it takes more than twice as long as was said while nothing looks as
        if it saved so much; else empty.
        """
        cures = self._open()
        needed_s = self._needed_s(len(cures)) if cures else 0.0
        most = min(((self._settings[name].ratio or 1.0) for name in cures), default=1.0)
        if not needed_s or (self.blocks > 1 and (needed_s < 2 * self._said_s or most < 1 - GAIN)):
            return ""
        self._said_s = needed_s
        what = count(len(cures), "cure") + (f", steps of {seconds(self._step_s)}" if self._step_s else "")
        noise = f"{'' if self.blocks else 'if '}blocks differ by {percent(self._noise or _CALM)}"
        said = f"{what}: a gain of {percent(GAIN)} shows within {seconds(needed_s)} ({noise})."
        if needed_s <= self._limit_s:
            return said
        fitting = [name for at, name in enumerate(cures, 1) if self._needed_s(at) <= self._limit_s]
        fits = f"only that of {listed(fitting, 8)} does" if fitting else "only larger gains do"
        minutes = math.ceil(needed_s / 60)
        return f"{said} In {seconds(self._limit_s)} {fits}: give --minutes {minutes}, or fewer --cures."

    def _open(self) -> list[str]:
        return [name for name, each in self._settings.items() if name != TODAY and not each.left]

    def _drawn(self) -> list[str]:
        """The settings of the next round, in its order."""
        if self.round == 0:
            # Some could not even be compared in the time that there is.
            blocks = int(self._limit_s / (_FEWEST_ROUNDS * max(self._block_s(), 1e-9)))
            for name in self._open()[max(1, blocks - 1) :]:
                self._leave(name, f"there is no time for it in {seconds(self._limit_s)}")
            self._number = len(self._open())
            self._sizes = _halved(self._number)
        names = [TODAY, *self._racing()]
        self._backwards = not self._backwards
        if self._backwards and set(names) == set(self._order):
            self._order.reverse()
        else:
            self._backwards = False
            first = self._tried.now if self._tried.now in names else TODAY
            others = [name for name in names if name != first]
            self._order = [first, *self._random.sample(others, len(others))]
        return list(self._order)

    def _racing(self) -> list[str]:
        """The cures of the next round: all that are left in the race, or the most promising where time runs out."""
        phase = int(len(self._sizes) * self._tried.took_s / self._limit_s) if self._limit_s else 0
        promising = sorted(self._open(), key=lambda name: self._settings[name].ratio or 1.0)
        return promising[: self._sizes[min(phase, len(self._sizes) - 1)]]

    def _passes(self) -> int:
        today = self._settings[TODAY].blocks
        if not today or not self._step_s:
            return _FIRST_PASSES
        wanted = max(_BLOCK_S / self._step_s, 1 if today[-1].spread <= _CALM else _NOISY_PASSES)
        affordable = self._limit_s / (_ROUNDS * (len(self._open()) + 1) * self._step_s) - UNCOUNTED
        return max(1, int(min(wanted, affordable, _MOST_PASSES)))

    def _block_s(self) -> float:
        """What the next block takes, about."""
        if not self._start_s:
            return (UNCOUNTED + self._passes()) * self._step_s
        return (self._tried.took_s - self._begun_s) / self.blocks if self.blocks else self._start_s

    def _needed_s(self, cures: int) -> float:
        """For a gain of 10% of one of so many, with the noise that is known so far."""
        noise = self._noise or _CALM
        rounds, enough = 2, -math.log(1 - GAIN) / noise
        while rounds < MOST_BLOCKS and reach(rounds - 2 + cures, 2 / rounds, CHANCE / cures) > enough:
            rounds += 1
        # The last one has its rounds in all parts of the time.
        sizes = _halved(cures)
        return rounds * len(sizes) * self._block_s() / sum(1 / (size + 1) for size in sizes)

    def _judge(self) -> bool:
        """After a round: who leaves; whether the race is over."""
        if self.round % max(1, self.round // _LOOK_EVERY):
            return not self._open()  # one round more would hardly tell
        compared = self._compare()
        if self.round + 1 < _FEWEST_ROUNDS:
            return not self._open()
        for name in self._open():
            if (ratio := compared.ratio(name, TODAY)) is None:
                continue
            faster = (
                other for other in self._open() if other != name and _surely(compared, name, other, 1.0)
            )
            if ratio.low > 1:
                self._leave(name, f"its step takes {ratio.middle:.2f} of what it is")
            elif ratio.low >= 1 - MARGIN and ratio.high >= WORTH:
                self._leave(name, f"it saves less than {percent(MARGIN)}")
            elif other := next(faster, ""):
                self._leave(name, f"{other} is faster")
        names, best = self._open(), self._best()
        if best == TODAY:
            return not names
        # The others could save no more than what matters, or have lost their time to it.
        alone = self._racing() == [best]
        return alone or all(_surely(compared, other, best, 1 - MARGIN) for other in names if other != best)

    def _compare(self) -> Comparison:
        """All that the blocks tell of each setting."""
        blocks = {name: each.blocks for name, each in self._settings.items()}
        compared = Comparison(blocks, CHANCE / self._number)
        self._noise = compared.noise or self._noise
        today_ms = median(each.step_s * 1e3 for each in blocks[TODAY]) if blocks[TODAY] else None
        for name, each in self._settings.items():
            ratio = compared.ratio(name, TODAY) if today_ms is not None and each.blocks else None
            if ratio is not None and today_ms is not None:
                self._settings[name] = _with_numbers(each, ratio, today_ms, is_today=name == TODAY)
        return compared

    def _best(self) -> str:
        """The cure to keep, by what is known; today's setting if nothing shows a gain."""
        sure = [name for name in self._open() if (self._settings[name].ratio_high or 1.0) < WORTH]
        return min(sure, key=lambda name: self._settings[name].ratio or 1.0, default=TODAY)

    def _leave(self, name: str, why: str) -> None:
        self._settings[name] = replace(self._settings[name], left=why)

    def _end(self, state: TrialState, why: str = "") -> Turn:
        self._compare()
        best = self._best()
        kept = best if self._keep == "best" else TODAY
        self._tried = replace(self._tried, state=state, why=why, best=best, kept=kept, now=TODAY)
        return Turn(kept, 0, over=True)


def _surely(compared: Comparison, slower: str, faster: str, times: float) -> bool:
    """Whether the step of one is more than so many times that of the other."""
    ratio = compared.ratio(slower, faster)
    return ratio is not None and ratio.low > times


def _halved(cures: int) -> list[int]:
    """How many race in each part of the time."""
    return [cures, *_halved(cures // 2)] if cures > 1 else [cures]


def _with_numbers(cure: TriedCure, ratio: Ratio, today_ms: float, *, is_today: bool) -> TriedCure:
    """A setting with what its blocks tell. Its step is today's times the ratio: both are of the same rounds."""
    waits = [each.exposed_s * 1e3 for each in cure.blocks if each.exposed_s is not None]
    cure = replace(cure, rounds=len(cure.blocks), exposed_ms=median(waits) if waits else None)
    if is_today:
        return replace(cure, step_ms=today_ms)
    known = math.isfinite(ratio.high)
    return replace(
        cure,
        step_ms=ratio.middle * today_ms,
        ratio=ratio.middle,
        ratio_low=ratio.low if known else None,
        ratio_high=ratio.high if known else None,
        saved_ms=(1 - ratio.middle) * today_ms,
    )
