"""When a line takes longer on one rank than on others, and how often it is called so by chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pyddpdiag.analyse.bounds import CHANCE
from pyddpdiag.analyse.filing import FORWARD, PARTS, RankLines
from pyddpdiag.analyse.lines import RunLines, Where
from pyddpdiag.analyse.looks import Sample, joined
from pyddpdiag.model.lines import Line, Stack

ADAM, FORWARD_LINE, EXTRA, BACKWARD_LINE = (
    Line("train.py", 10, "adam"),
    Line("train.py", 20, "forward"),
    Line("train.py", 30, "work"),
    Line("train.py", 40, "main"),
)
LINES = (ADAM, FORWARD_LINE, EXTRA, BACKWARD_LINE)
STEPS = 60


LOOK_MS = 50.0


def sample(looks: int, at_once: int = 1) -> Sample:
    """So many looks at a place, in steps of their own or so many in one."""
    per_step = np.zeros(STEPS)
    np.add.at(per_step, 37 * (np.arange(looks) // at_once) % STEPS, LOOK_MS)
    return Sample(per_step, LOOK_MS)


def test_a_place_takes_longer_beyond_chance_only() -> None:
    assert sample(30).exceeds(sample(5), 1.0, 1)
    assert not sample(30).exceeds(sample(25), 1.0, 1) and not sample(25).exceeds(sample(30), 1.0, 1)
    # The more differences were looked at, the larger the largest may be by chance.
    assert sample(14).exceeds(sample(3), 1.0, 1) and not sample(14).exceeds(sample(3), 1.0, 20)
    # As long as it may be there.
    assert sample(50).exceeds(sample(10), 2.0, 1) and not sample(50).exceeds(sample(10), 4.0, 1)
    # A place that no look met may be one that the next would meet.
    assert sample(8).exceeds(sample(0), 1.0, 1) and not sample(8).exceeds(sample(0), 4.0, 1)
    nothing = Sample(np.empty(0), LOOK_MS)
    assert not joined([nothing]).exceeds(nothing, 1.0, 1)


def test_looks_of_one_step_are_no_independent_ones() -> None:
    assert sample(36).exceeds(sample(10), 1.0, 5)
    assert not sample(36, at_once=18).exceeds(sample(10), 1.0, 5)
    assert sample(36).mean_ms == sample(36, at_once=18).mean_ms == pytest.approx(30.0)


def rank_lines(looks: list[tuple[int, Line]]) -> RankLines:
    """Looks at a rank's forward pass: the step and the line."""
    count = len(looks)
    part = np.full(count, PARTS.index(FORWARD), np.int8)
    return RankLines(
        stacks=tuple(Stack((line,)) for line in LINES),
        at_ns=np.arange(count, dtype=np.int64),
        stack=np.array([LINES.index(line) for _, line in looks], np.int32),
        part=part,
        step=np.array([step for step, _ in looks], np.int64),
        phase=np.full(count, -1, np.int16),
        phases=(),
        interval_ms=50.0,
        missed_ms=0.0,
    )


def named(mine: list[tuple[int, Line]], *others: list[tuple[int, Line]], times: float = 1.0) -> Where | None:
    """What is said of rank 0, which is late, beside the others."""
    lines = RunLines({rank: rank_lines(looks) for rank, looks in enumerate((mine, *others))})
    return lines.more_of(0, np.arange(STEPS, dtype=np.int64), 0.0, times)


def spread(**counts: int) -> list[tuple[int, Line]]:
    """So many looks at each line, over all steps."""
    by_name = {"adam": ADAM, "forward": FORWARD_LINE, "work": EXTRA, "main": BACKWARD_LINE}
    looks = [by_name[name] for name, count in counts.items() for _ in range(count)]
    # A stride that meets all steps.
    return [(37 * number % STEPS, line) for number, line in enumerate(looks)]


def test_a_line_that_is_slowed_like_all_others_is_not_named_for_most_of_the_looks() -> None:
    """The looks of a run on a busy machine: one rank computes twice as much, in `work`, and waits for cores."""
    assert named(spread(adam=33, work=13, forward=4), spread(adam=11, forward=2), times=50 / 13) is None
    found = named(spread(adam=132, work=80, forward=16), spread(adam=44, forward=8), times=228 / 52)
    assert found is not None and found.line == EXTRA
    # Most of what it needs more passes elsewhere: that is what it says.
    assert found.share == pytest.approx(80 / (88 + 80 + 8))


def test_a_line_that_only_takes_longer_on_one_rank_is_named() -> None:
    found = named(spread(adam=30, forward=120), spread(adam=30, forward=30), times=1.1)
    assert found is not None and found.line == FORWARD_LINE and found.share == pytest.approx(1.0)


def test_looks_that_met_one_long_wait_name_no_line() -> None:
    """In two steps the rank was off its core for long, at one line."""
    waits = [(step, ADAM) for step in (11, 47) for _ in range(20)]
    assert named(spread(adam=20, forward=30, main=10) + waits, spread(adam=20, forward=30, main=10)) is None
    # As much in many steps is no chance.
    often = [(step, ADAM) for step in range(0, 60, 3) for _ in range(2)]
    assert (
        named(spread(adam=20, forward=30, main=10) + often, spread(adam=20, forward=30, main=10)) is not None
    )


def _busy(random: np.random.Generator, times: float) -> list[tuple[int, Line]]:
    """A rank's looks at four lines where each step waits once for a core, for a while, at one of them."""
    looks: list[tuple[int, Line]] = []
    for step in range(STEPS):
        usual: npt.NDArray[np.int64] = random.poisson(np.array([0.5, 0.8, 0.1, 0.9]) * times)
        usual[random.choice(4, p=[0.5, 0.2, 0.1, 0.2])] += random.poisson(2.0 * times)
        looks += [(step, line) for line, count in zip(LINES, usual, strict=True) for _ in range(int(count))]
    return looks


@pytest.mark.parametrize("times", [1.5, 3.0])
def test_a_rank_that_is_slower_at_every_line_gets_none(times: float) -> None:
    random = np.random.default_rng(48)
    runs = 300
    wrong = sum(named(_busy(random, times), _busy(random, 1.0), times=times) is not None for _ in range(runs))
    # Three standard deviations above the error that is allowed.
    assert wrong <= runs * CHANCE + 3 * (runs * CHANCE) ** 0.5
