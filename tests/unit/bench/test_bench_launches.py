"""How rounds and a budget are divided among launches, and that a resumed sweep has the same number of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from pyddpdiag.bench.cases import allreduce_cases
from pyddpdiag.bench.engine.collect import Collected, ResultWriter, whole
from pyddpdiag.bench.engine.plan import (
    Budget,
    Gathered,
    Launch,
    LeftOut,
    Measured,
    SweepPlan,
    has_room,
    left_s,
    rounds_of_launches,
    share,
)
from pyddpdiag.bench.results import launches_of
from pyddpdiag.errors import UsageError
from pyddpdiag.ranks.interfaces import choose

PLAN = SweepPlan(cases=tuple(allreduce_cases([2**20, 2**22], [2])), rounds=30, launches=5)
BUDGET = Budget(120.0, started=1000.0)
LIMITED = replace(PLAN, budget=BUDGET)


def launch(number: int, began: float = 1000.5) -> Launch:
    return Launch(number, 4 - number, (0, 1), None, began, "unused", launched=True)


@pytest.mark.parametrize(
    ("rounds", "launches", "found"),
    [(30, 5, [6] * 5), (32, 5, [7, 7, 6, 6, 6]), (10, 5, [4, 3, 3]), (2, 5, [2]), (30, 1, [30])],
)
def test_rounds_are_divided(rounds: int, launches: int, found: list[int]) -> None:
    assert rounds_of_launches(whole(replace(PLAN, rounds=rounds, launches=launches))) == found
    assert sum(found) == rounds


def test_where_only_the_budget_limits_rounds_no_launch_has_a_number() -> None:
    assert rounds_of_launches(whole(replace(LIMITED, rounds=None))) == [None] * 5


def test_without_a_budget_there_is_time() -> None:
    assert share(PLAN, launch(1), 5.0) == (math.inf, 3)
    assert has_room(PLAN, 1e9, 1e6)


def test_a_budget_is_divided_and_kept_whatever_starting_takes() -> None:
    for start_s in (2.0, 5.0, 12.0, 40.0, 110.0):
        now, ends = 1000.5 + start_s, []
        for number in range(5):
            end, follow = share(LIMITED, launch(number, began=now - start_s), now)
            assert end <= BUDGET.started + 120.0
            ends.append((end, follow))
            if number == 0:
                # Starting the others takes no more than a quarter of what is left.
                assert follow * start_s <= 0.25 * left_s(LIMITED, now)
            if not follow or not has_room(LIMITED, end + 1.5, start_s):
                break
            now = end + 1.5 + start_s
        assert ends[0][1] == {2.0: 4, 5.0: 4, 12.0: 1, 40.0: 0, 110.0: 0}[start_s]
        assert ends[-1][0] > BUDGET.started + 100.0, "a part of the budget is not used"


def test_a_budget_that_is_over_leaves_no_room() -> None:
    assert not has_room(LIMITED, 1119.0, 0.5)
    assert has_room(LIMITED, 1110.0, 2.0)
    end, follow = share(LIMITED, launch(0), 1125.0)
    assert end < 1125.0 and follow == 0


def test_rounds_are_counted_by_launch_and_what_was_measured_is_not_left_out() -> None:
    collected = Collected(PLAN)
    collected.take(Gathered(("here", "here"), ((), ()), ""))
    for number, cases in enumerate(((0, 1, 0), (0,), (1, 1))):
        collected.begin_launch(number)
        for case in cases:
            collected.take(Measured(case, 0.1, 4))
    collected.take(LeftOut(0, "the budget"))
    assert collected.left_out == {}
    assert [launches_of(entry) for entry in collected.entries()] == [[2, 1], [1, 2]]


def test_a_resumed_sweep_has_the_launches_that_are_left(tmp_path: Path) -> None:
    def collected(*launches: int) -> Collected:
        found = Collected(PLAN)
        found.take(Gathered(("here", "here"), ((), ()), choose((), local=True)[0]))
        for number, rounds in enumerate(launches):
            found.begin_launch(number)
            for _ in range(rounds):
                for case in (0, 1):
                    found.take(Measured(case, 0.1, 4))
        return found

    path = tmp_path / "a.json"
    ResultWriter(path).keep(collected(6, 6, 3), complete=False)
    writer = ResultWriter(path, resume=True)
    left = writer.open(PLAN)
    assert (left.rounds, left.launches) == (15, 2)
    joined = collected(*filter(None, rounds_of_launches(left))).entries(writer.before)
    assert [launches_of(entry) for entry in joined] == [[6, 6, 3, 8, 7]] * 2


def test_launches_are_checked() -> None:
    with pytest.raises(UsageError, match="--sittings is 0"):
        replace(PLAN, launches=0)
