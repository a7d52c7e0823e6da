"""Which ranks' saves of a file ran at the same time."""

import numpy as np
import pytest

from pyddpdiag.analyse.batches import shared_files
from pyddpdiag.model.saves import Saved
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Training

CLOCKS = dict.fromkeys(range(8), "one clock")


def sidecars(*spans: tuple[tuple[int, int], ...]) -> dict[int, Sidecar]:
    """Of so many ranks, each with these saves of one file."""
    return {
        rank: Sidecar(training=Training(saved=(Saved("ff", "last.pt", "train.py:9", len(mine), mine),)))
        for rank, mine in enumerate(spans)
    }


@pytest.mark.parametrize("seed", range(20))
def test_saves_at_once_are_those_that_meet_one_of_another_rank(seed: int) -> None:
    random = np.random.default_rng(seed)
    of_ranks = []
    for _ in range(int(random.integers(2, 6))):
        begins = random.integers(0, 400, 12)
        of_ranks.append(tuple((int(begin), int(begin + random.integers(1, 30))) for begin in begins))
    expected = sum(
        any(
            begin < other[1] and other[0] < end
            for rank, theirs in enumerate(of_ranks)
            for other in theirs
            if rank != mine
        )
        for mine, spans in enumerate(of_ranks)
        for begin, end in spans
    )
    (found,) = shared_files(sidecars(*of_ranks), CLOCKS)
    assert (found.at_once, found.known) == (expected, 12 * len(of_ranks))


def test_ranks_on_a_clock_that_is_not_known_are_not_compared() -> None:
    at_once = sidecars(((1, 5),), ((2, 6),))
    assert shared_files(at_once, {0: "", 1: ""}) == ()
    assert shared_files(at_once, {0: "a", 1: "b"}) == ()
    (found,) = shared_files(at_once, CLOCKS)
    assert (found.ranks, found.at_once, found.times, found.where) == ((0, 1), 2, 2, "train.py:9")
