"""Which setting comes next in a trial, for how many passes, and when it is over: rank 0 decides. Without torch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from pyddpdiag.model.trial import MOST_BLOCKS, TODAY, Block, Keep, Trial, TrialState, TriedCure
from pyddpdiag.model.trial_statistics import (
    choose,
    costs_too_much,
    fewest_pairs,
    ratios,
    slower_in_all,
    with_result,
)

UNCOUNTED: Final = 3
"""The first passes after a change: DDP rebuilds its buckets in the second one."""

_FIRST_PASSES: Final = 4
_FEWEST_PASSES: Final = 3
_MOST_PASSES: Final = 200
_BLOCK_S: Final = 0.4


@dataclass(frozen=True)
class Turn:
    """A setting for so many counted passes; `over`: for good."""

    name: str
    passes: int
    over: bool = False


class Schedule:
    """The turns of one trial.

    Args:
        today, cures: the settings; a cure with `left` set gets no turn.
        module: as in `Trial`.
        keep: as in `Trial`.
        limit_s: as in `Trial`.
        seed: of the order.
    """

    def __init__(
        self, today: TriedCure, cures: Sequence[TriedCure], module: int, keep: Keep, limit_s: float, seed: int
    ) -> None:
        self._today = today
        self._cures = {each.name: each for each in cures}
        self._module, self._keep, self._limit_s = module, keep, limit_s
        self._order = random.Random(seed)
        self._number = sum(not each.left for each in cures)
        self._fewest = self._next_look = fewest_pairs(self._number)
        self._queue: list[str] = []
        self._latest = ""  # the cure of the latest block that was not today's
        self._blocks = 0
        self._on = TODAY
        self._kept = ""
        self._best = ""
        self._state: TrialState = "waiting"
        self._why = ""
        self._took_s = 0.0

    @property
    def blocks(self) -> int:
        """How many there were."""
        return self._blocks

    @property
    def is_over(self) -> bool:
        """Whether it has been ended."""
        return self._state in ("decided", "time over")

    def measured(self, name: str, block: Block) -> None:
        """A block of a setting is over."""
        self._blocks += 1
        if name == TODAY:
            self._today = replace(self._today, blocks=(*self._today.blocks, block))
            self._judge()
        else:
            cure = self._cures[name]
            self._cures[name] = replace(cure, blocks=(*cure.blocks, block))
            self._latest = name

    def failed(self, name: str, why: str) -> None:
        """A cure could not be put on; the ranks have today's setting again."""
        self._on = TODAY
        if name in self._cures:
            self._cures[name] = replace(self._cures[name], left=why)
        if self._kept == name:
            self._kept = TODAY

    def next(self, took_s: float) -> Turn:
        """The next turn, so many seconds after the trial's begin."""
        self._took_s = took_s
        self._state = "running"
        remaining = [name for name, each in self._cures.items() if not each.left]
        if self._on != TODAY:
            return self._turn(TODAY)  # each cure has today's setting on both sides
        if not remaining:
            tried = any(each.blocks for each in self._cures.values())
            return self._end("decided", "" if tried else "No cure can be tried on this module.")
        if not self._today.blocks:
            return Turn(TODAY, _FIRST_PASSES)
        choice = choose({name: self._cures[name].result for name in remaining})
        self._best = choice.name
        pairs = min(self._pairs(name) for name in remaining)
        look = pairs >= self._next_look
        if look:
            self._next_look = 2 * pairs
        # A gain is looked for only so often (`trial_statistics.beyond`); that there is none may be seen at any time.
        if choice.sure and pairs >= self._fewest and (look or choice.name == TODAY):
            return self._end("decided")
        if took_s >= self._limit_s or self._blocks + 3 > MOST_BLOCKS:
            return self._end("time over")
        self._queue = [name for name in self._queue if name in remaining]
        if not self._queue:
            self._queue = self._order.sample(remaining, len(remaining))
        return self._turn(self._queue.pop(0))

    def trial(self) -> Trial:
        """All of it, as it stands now."""
        best = self._best if self._state in ("decided", "time over") else ""
        return Trial(
            state=self._state,
            module=self._module,
            today=self._today,
            cures=tuple(self._cures.values()),
            on=self._on,
            best=best,
            kept=self._kept,
            keep=self._keep,
            limit_s=self._limit_s,
            took_s=self._took_s,
            why=self._why,
        )

    def _turn(self, name: str) -> Turn:
        self._on = name
        step_s = next((each.step_s for each in reversed(self._today.blocks) if each.step_s), None)
        if step_s is None:
            return Turn(name, _FIRST_PASSES)
        # So short that all cures that are left get their pairs in the time that is left.
        remaining = sum(not each.left for each in self._cures.values())
        blocks = 2 * max(1, remaining) * (self._fewest + 1)
        affordable = self._limit_s / blocks / step_s - UNCOUNTED
        passes = int(min(_BLOCK_S / step_s, affordable, _MOST_PASSES))
        return Turn(name, max(_FEWEST_PASSES, passes))

    def _judge(self) -> None:
        """After a block of today's setting, which is the second neighbour of the cure before it."""
        today = self._today.blocks
        latest = self._cures.get(self._latest)
        self._latest = ""
        if latest is not None:
            # Those of the others have not changed: their blocks have both neighbours.
            self._cures[latest.name] = with_result(latest, self._today, self._number)
            if costs_too_much(latest.blocks, today):
                slower = median(ratios(latest.blocks[-2:], today))
                self._leave(
                    latest.name,
                    f"{'its last blocks' if len(latest.blocks) > 1 else 'its block'} took {slower:.2g} times today's "
                    "step",
                )
        open_cures = {name: ratios(each.blocks, today) for name, each in self._cures.items() if not each.left}
        for name, ours in open_cures.items():
            if slower_in_all(ours):
                self._leave(name, "all of its blocks were slower than today's setting")
                continue
            for other, theirs in open_cures.items():
                if other != name and slower_in_all(ours, theirs):
                    self._leave(name, f"all of its blocks were slower than those with {other}")
                    break

    def _leave(self, name: str, why: str) -> None:
        self._cures[name] = replace(self._cures[name], left=why)

    def _pairs(self, name: str) -> int:
        result = self._cures[name].result
        return 0 if result is None else result.pairs

    def _end(self, state: TrialState, why: str = "") -> Turn:
        self._state, self._why = state, why
        results = {name: each.result for name, each in self._cures.items() if not each.left}
        self._best = choose(results).name
        self._on = self._kept = self._best if self._keep == "best" else TODAY
        return Turn(self._kept, 0, over=True)


__all__ = ["UNCOUNTED", "Schedule", "Turn"]
