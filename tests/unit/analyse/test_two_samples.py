"""When a part of some looks is larger than of others, and how often it is called so by chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pyddpdiag.analyse.filing import FORWARD, PARTS, RankLines
from pyddpdiag.analyse.lines import RunLines, Where
from pyddpdiag.analyse.two_samples import ERROR, Sample, joined
from pyddpdiag.model.lines import Line, Stack

ADAM, FORWARD_LINE, EXTRA, BACKWARD_LINE = (
    Line("train.py", 10, "adam"),
    Line("train.py", 20, "forward"),
    Line("train.py", 30, "work"),
    Line("train.py", 40, "main"),
)
LINES = (ADAM, FORWARD_LINE, EXTRA, BACKWARD_LINE)
STEPS = 60


def sample(hits: int, looks: int, clusters: int = 0) -> Sample:
    """Each look in a step of its own, or all of them in so many steps, as hits and misses alike."""
    if not clusters:
        at = np.arange(looks) < hits
        return Sample(at.astype(np.int64), np.ones(looks, np.int64))
    each = np.zeros(clusters, np.int64)
    each[: clusters * hits // looks] = looks // clusters
    return Sample(each, np.full(clusters, looks // clusters))


def test_a_share_exceeds_another_beyond_chance_only() -> None:
    assert sample(30, 60).exceeds(sample(5, 60), 1)
    assert not sample(30, 60).exceeds(sample(25, 60), 1)
    assert not sample(25, 60).exceeds(sample(30, 60), 1)
    # The more differences were looked at, the larger the largest may be by chance.
    assert sample(14, 60).exceeds(sample(4, 60), 1) and not sample(14, 60).exceeds(sample(4, 60), 20)
    # No looks, or few, say nothing.
    assert not sample(1, 1).exceeds(sample(0, 1), 1)
    assert not joined([sample(0, 0)]).exceeds(joined([sample(0, 0)]), 1)


def test_looks_of_one_step_are_no_independent_ones() -> None:
    assert sample(36, 60).exceeds(sample(10, 60), 5)
    assert not sample(36, 60, clusters=5).exceeds(sample(12, 60, clusters=5), 5)
    assert sample(36, 60).share == sample(36, 60, clusters=5).share == pytest.approx(0.6)


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


def named(mine: list[tuple[int, Line]], *others: list[tuple[int, Line]]) -> Where | None:
    """What is said of rank 0, which is late, beside the others."""
    lines = RunLines({rank: rank_lines(looks) for rank, looks in enumerate((mine, *others))})
    return lines.more_of(0, np.arange(STEPS, dtype=np.int64), 0.0)


def spread(**counts: int) -> list[tuple[int, Line]]:
    """So many looks at each line, over all steps."""
    by_name = {"adam": ADAM, "forward": FORWARD_LINE, "work": EXTRA, "main": BACKWARD_LINE}
    looks = [by_name[name] for name, count in counts.items() for _ in range(count)]
    # A stride that meets all steps.
    return [(37 * number % STEPS, line) for number, line in enumerate(looks)]


def test_a_line_that_is_slowed_like_all_others_is_not_named_for_most_of_the_looks() -> None:
    """The looks of a run on a busy machine: one rank computes twice as much, in `work`, and waits for cores."""
    assert named(spread(adam=33, work=13, forward=4), spread(adam=11, forward=2)) is None
    found = named(spread(adam=99, work=60, forward=12), spread(adam=33, forward=6))
    assert found is not None and found.line == EXTRA
    # Of the time, most is elsewhere: that is what it says.
    assert found.share == pytest.approx(60 / (66 + 60 + 6))


def test_a_line_that_only_takes_longer_on_one_rank_is_named() -> None:
    found = named(spread(adam=30, forward=90), spread(adam=30, forward=30))
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
    wrong = sum(named(_busy(random, times), _busy(random, 1.0)) is not None for _ in range(runs))
    # Three standard deviations above the error that is allowed.
    assert wrong <= runs * ERROR + 3 * (runs * ERROR) ** 0.5
