"""How settings of a trial compare: ratios of their steps, with intervals that hold however often one looks.

Blocks of one round are taken close to each other, so what the machine does meanwhile is common to them: the logarithm
of a block's step is that of its setting, plus that of its round, plus noise. Least squares take the rounds out, and all
blocks together tell the noise, which is why a few rounds suffice. Without torch.

The intervals are always valid: a trial may look after each round, leave settings, and stop because of what it sees.
They are confidence sequences (Howard, Ramdas, McAuliffe, Sekhon: Time-uniform, nonparametric, nonasymptotic confidence
sequences, Annals of Statistics 49, 2021), here those of a normal mixture for one coefficient of a linear model whose
noise is unknown (Lindon, Ham, Tingley, Bojinov: Anytime-valid linear models, arXiv 2210.08589, 2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.model.tried import Block

_MIXTURE: Final = 0.02
"""Of the mixture: it spreads effects over some seven standard deviations of a block, so that a large one shows after
three rounds. Any value is valid."""


@dataclass(frozen=True)
class Ratio:
    """A ratio with its interval; 0 and infinity: nothing is known yet."""

    middle: float
    low: float
    high: float


class Comparison:
    """Settings of a trial, compared by their blocks.

    `blocks`: of each setting, by its name; in each round at most one. `chance`: that a single interval ever misses
    the truth, in the whole trial.
    """

    def __init__(self, blocks: Mapping[str, Sequence[Block]], chance: float) -> None:
        self._places = {name: place for place, name in enumerate(blocks)}
        self._chance = chance
        last = max((each.round for of in blocks.values() for each in of), default=-1)
        on, logs = (np.zeros((last + 1, len(blocks))) for _ in range(2))
        for place, of in enumerate(blocks.values()):
            for each in of:
                on[each.round, place], logs[each.round, place] = 1, math.log(each.step_s)
        per_round = np.maximum(on.sum(axis=1, keepdims=True), 1)
        apart = on * (logs - logs.sum(axis=1, keepdims=True) / per_round)
        normal = np.diag(on.sum(axis=0)) - on.T @ (on / per_round)
        inverse = np.linalg.pinv(normal, hermitian=True)
        means = inverse @ apart.sum(axis=0)
        self._means, self._inverse = means.tolist(), inverse.tolist()
        # Who had rounds together, also by way of others.
        self._met = (np.linalg.matrix_power(on.T @ on > 0, max(1, len(blocks) - 1)) > 0).tolist()
        self._squares = max(0.0, float((apart * apart).sum() - apart.sum(axis=0) @ means))
        rounds, rank = np.count_nonzero(on.any(axis=1)), np.linalg.matrix_rank(normal, hermitian=True)
        self._freedom = int(on.sum()) - int(rounds) - int(rank)

    @property
    def noise(self) -> float | None:
        """The standard deviation of a block, as a part of it; None: not known."""
        return math.sqrt(self._squares / self._freedom) if self._freedom > 0 else None

    def ratio(self, one: str, other: str) -> Ratio | None:
        """Of the one's step to the other's; None: no round had both, not even by way of others."""
        here, there, inverse = self._places[one], self._places[other], self._inverse
        if not self._met[here][there]:
            return None
        middle = self._means[here] - self._means[there]
        variance = inverse[here][here] + inverse[there][there] - 2 * inverse[here][there]  # of a noise of 1
        away, noise = reach(self._freedom, variance, self._chance), self.noise
        if noise is None or math.isinf(away):
            return Ratio(math.exp(middle), 0.0, math.inf)
        return Ratio(*(math.exp(middle + each * noise) for each in (0.0, -away, away)))


def reach(freedom: int, variance: float, chance: float) -> float:
    """Half of an interval's width, of the noise of a block.

    A t value is outside when the mixture's likelihood ratio exceeds 1 / chance, where r = m / (m + 1 / variance):
    sqrt(r) ((1 + t^2 / freedom) / (1 + r t^2 / freedom))^((freedom + 1) / 2).

    Args:
        freedom: degrees of it that the noise was told by.
        variance: of the difference, where the noise is 1.
        chance: that the interval ever misses the truth.
    """
    if freedom < 1 or variance <= 0:
        return math.inf if variance > 0 else 0.0
    part = _MIXTURE / (_MIXTURE + 1 / variance)
    try:
        level = (1 / chance / math.sqrt(part)) ** (2 / (freedom + 1))
    except OverflowError:
        return math.inf
    if level * part >= 1:
        return math.inf
    return math.sqrt(freedom * (level - 1) / (1 - level * part) * variance)
