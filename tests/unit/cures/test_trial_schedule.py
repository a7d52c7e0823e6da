"""The order and the end of a trial, on steps that a test makes up: no cure is measured here."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from pyddpdiag.cures.trial_schedule import Schedule
from pyddpdiag.model.trial import TODAY, Block, Keep, Trial, TriedCure
from pyddpdiag.model.trial_statistics import is_too_slow

Step = Callable[[str, int], float]


def run(steps: Mapping[str, Step], *, keep: Keep = "best", limit_s: float = 1000.0, today: Step) -> Trial:
    """A trial of these cures; a block lasts ten steps."""
    cures = [TriedCure(name, {"--shared-memory": name}) for name in steps]
    schedule = Schedule(TriedCure(TODAY), cures, 0, keep, limit_s, seed=5)
    took, turn = 0.0, schedule.next(0.0)
    while not turn.over:
        assert turn.passes >= 3
        order = schedule.blocks
        step_s = (today if turn.name == TODAY else steps[turn.name])(turn.name, order)
        schedule.measured(turn.name, Block(order, order, order, passes=turn.passes, step_s=step_s))
        took += 10 * step_s
        turn = schedule.next(took)
    assert schedule.trial().on == turn.name
    return schedule.trial()


def noisy(step_s: float, spread: float = 0.01, seed: int = 1) -> Step:
    draw = random.Random(seed)
    return lambda _, __: step_s * draw.uniform(1 - spread, 1 + spread)


def test_the_best_is_found_and_kept() -> None:
    trial = run({"a": noisy(0.07, seed=2), "b": noisy(0.05, seed=3)}, today=noisy(0.1))
    assert (trial.state, trial.best, trial.kept) == ("decided", "b", "b")
    result = trial.cures[1].result
    assert result is not None and result.low is not None and result.high is not None
    assert result.low < result.ratio < result.high < 0.6
    assert result.saved_s == pytest.approx((1 - result.ratio) * result.today_s)


def test_nothing_is_kept_where_nobody_wants_it() -> None:
    trial = run({"b": noisy(0.05)}, keep="none", today=noisy(0.1))
    assert (trial.best, trial.kept) == ("b", TODAY)


def test_where_nothing_is_faster_today_stays() -> None:
    trial = run({"a": noisy(0.1, 0.02, 2), "b": noisy(0.1, 0.02, 3)}, today=noisy(0.1, 0.02))
    assert trial.best == trial.kept == TODAY and trial.nothing_to_gain


def test_a_slow_cure_gets_one_block() -> None:
    trial = run({"a": noisy(0.3), "b": noisy(0.09, seed=4)}, today=noisy(0.1))
    assert len(trial.cures[0].blocks) == 1 and "10% slower" in trial.cures[0].left
    assert trial.best == "b"


def test_one_slow_block_among_fast_ones_does_not_end_a_cure() -> None:
    def one_slow(_: str, order: int) -> float:
        return 0.2 if order == 5 else 0.05

    trial = run({"a": one_slow}, today=noisy(0.1))
    (cure,) = trial.cures
    assert [each.step_s for each in cure.blocks].count(0.2) == 1
    assert not cure.left and trial.kept == "a"


def test_a_block_may_differ_as_much_as_todays_do() -> None:
    today = [Block(order, 0, 0, step_s=step) for order, step in ((0, 0.15), (2, 0.1), (4, 0.1), (6, 0.1))]
    assert not is_too_slow(Block(5, 0, 0, step_s=0.14), today)
    assert is_too_slow(Block(5, 0, 0, step_s=0.17), today)
    assert is_too_slow(Block(5, 0, 0, step_s=0.14), today[1:])


def test_todays_setting_is_on_both_sides_of_each_block() -> None:
    trial = run({"a": noisy(0.08), "b": noisy(0.079, seed=4)}, today=noisy(0.1))
    orders = {each.order for each in trial.today.blocks}
    for cure in trial.cures:
        assert all({each.order - 1, each.order + 1} <= orders for each in cure.blocks)


def test_a_drift_is_no_gain() -> None:
    def drifting(_: str, order: int) -> float:
        return 0.1 * 0.99**order

    trial = run({"a": drifting}, today=drifting)
    result = trial.cures[0].result
    assert result is not None and result.ratio == pytest.approx(1, abs=0.001)
    assert trial.best == TODAY


def test_the_time_is_over() -> None:
    trial = run({"a": noisy(0.1, 0.3, 2)}, limit_s=5.0, today=noisy(0.1, 0.3))
    assert trial.state in ("time over", "decided")
    assert trial.took_s < 8


def test_a_cure_that_fails_is_left() -> None:
    schedule = Schedule(TriedCure(TODAY), [TriedCure("a")], 0, "best", 60, 1)
    turn = schedule.next(0)
    assert turn.name == TODAY
    schedule.measured(TODAY, Block(0, 0, 0, passes=3, step_s=0.1))
    assert schedule.next(1).name == "a"
    schedule.failed("a", "rank 1: no memory")
    assert schedule.next(2).over
    assert schedule.trial().cures[0].left == "rank 1: no memory"
    assert schedule.trial().kept == TODAY


@pytest.mark.parametrize("seed", range(40))
def test_what_is_kept_is_never_slower_by_more_than_noise(seed: int) -> None:
    # All settings alike, with blocks that differ by 10%.
    names = [f"c{number}" for number in range(4)]
    steps = {name: noisy(0.1, 0.1, seed * 10 + at) for at, name in enumerate(names)}
    trial = run(steps, limit_s=100, today=noisy(0.1, 0.1, seed * 10 + 9))
    best = next((each for each in trial.cures if each.name == trial.best), None)
    assert best is None or (best.result is not None and best.result.high is not None and best.result.high < 1)
