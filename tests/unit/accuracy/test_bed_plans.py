"""What the bed of faults runs: drawn from seeds, in two halves that share neither seeds nor models."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from bed.causes import CAUSES
from bed.jobs import HEALTHY, MODELS, half_models, half_of
from bed.page import BEGIN, END, figures, replace_part, wilson
from bed.runner import Outcome, Plan, plans


def test_a_seed_draws_the_same_run_again() -> None:
    for cause in CAUSES:
        assert Plan(4, cause).drawn() == Plan(4, cause).drawn()
    assert len({json.dumps(asdict(Plan(seed, "straggler computes").drawn())) for seed in range(40)}) > 20


def test_the_halves_share_neither_seeds_nor_models() -> None:
    names = list(CAUSES)
    early, final = list(plans(names, 60, 0, final=False)), list(plans(names, 60, 0, final=True))
    assert {plan.seed for plan in early}.isdisjoint(plan.seed for plan in final)
    assert {half_of(plan.seed) for plan in early} == {"open"}
    assert {half_of(plan.seed) for plan in final} == {"held out"}
    trained = [{plan.drawn().job.model for plan in some} for some in (early, final)]
    assert trained[0] >= set(MODELS["open"]) and trained[1] >= set(MODELS["held out"])
    assert trained[0].isdisjoint(trained[1])


def test_a_job_draws_further_models_of_its_own_half() -> None:
    for half, models in MODELS.items():
        for model in models:
            further = half_models(model)
            assert {half_models(one)["lstm"] for one in further.values()} == {further["lstm"]}, half


def test_healthy_runs_of_all_kinds_alternate_with_all_causes() -> None:
    found = list(plans(list(CAUSES), 2 * len(CAUSES), 0, final=False))
    assert [plan.cause == "healthy" for plan in found] == [False, True] * len(CAUSES)
    assert {plan.cause for plan in found} == {*CAUSES, "healthy"}
    assert {plan.kind for plan in found if plan.cause == "healthy"} == set(HEALTHY)


def test_the_culprit_is_one_of_the_ranks() -> None:
    for cause in CAUSES:
        for seed in range(20):
            drawn = Plan(seed, cause).drawn()
            assert drawn.truth.culprit is None or 0 <= drawn.truth.culprit < drawn.job.ranks
            assert drawn.fault["rank"] == drawn.truth.culprit


def test_load_on_one_core_is_no_single_ranks_where_the_others_wait_as_long() -> None:
    drawn = Plan(1, "other load on a core").drawn()
    assert not drawn.truth_if([0.02, 0.5]).shared and not drawn.truth_if([0.0, 0.0]).shared
    assert not drawn.truth_if([None, 0.5]).shared and not drawn.truth_if([]).shared
    assert drawn.truth_if([0.3, 0.5]).shared
    assert not Plan(1, "straggler computes").drawn().truth_if([0.5, 0.5]).shared


def test_a_fault_is_as_strong_as_asked_for() -> None:
    once, twice = (Plan(3, "straggler computes", dose=dose).drawn().fault for dose in (1.0, 2.0))
    assert twice == {**once, "share": 2 * once["share"]}
    once, half = (Plan(3, "slow link", dose=dose).drawn().fault for dose in (1.0, 0.5))
    assert half["divide"] - 1 == (once["divide"] - 1) / 2
    assert Plan(3, "killed", dose=2.0).drawn() == Plan(3, "killed").drawn()


def row(cause: str, said: str, *, right: bool, blame: str, cost: float | None = 1.5, kind: str = "") -> Any:
    outcome = Outcome(Plan(0, cause, kind), Plan(0, cause, kind).drawn(), cost=cost, waited=[0.1, 0.2])
    judgement = {"said": said, "kind": right, "cause": right, "family": right, "blame": blame, "alarms": []}
    return {**outcome.as_dict(), "judgement": judgement, "counts": cost is None or cost >= 1.1}


def test_the_figures_count_what_is_costly_enough() -> None:
    rows = [
        row("straggler computes", "late_rank", right=True, blame="right"),
        row("straggler computes", "healthy", right=False, blame="nobody"),
        row("straggler computes", "healthy", right=False, blame="nobody", cost=1.02),
        row("killed", "rank_lost", right=True, blame="another", cost=None),
        row("stopped", "rank_stopped", right=True, blame="right", cost=None),
        row("healthy", "healthy", right=True, blame="right", kind="plain"),
    ]
    text = figures(rows, "some version")
    assert "| names the cause | 3 of 4 (75.0%; 30.1% to 95.4%) |" in text
    assert "| names the cause and the culprit | 2 of 4 (50.0%; 15.0% to 85.0%) |" in text
    # By cost, what costs little counts, too.
    assert "| 0% to 5% | 0 of 1 " in text and "| 20% to 40% | 1 of 2 " in text
    assert "| blames another rank | 1 of 4 (25.0%; 4.6% to 69.9%) |" in text
    assert "| says healthy | 1 of 4 (25.0%; 4.6% to 69.9%) |" in text
    assert "| healthy runs without an alarm | 1 of 1 (100.0%; 20.7% to 100.0%) |" in text
    assert "less than 10% of the step: 1." in text
    assert "| straggler computes | 1 of 2 | 1.50 | late_rank 1, healthy 1 |" in text
    assert "| killed | 0 of 1 |  | rank_lost 1 |" in text and "Right in all of their runs: stopped." in text
    assert "Healthy trainings: 1 of 1 kinds. Alarms: none." in text


def test_quiet_and_busy_runs_are_counted_apart() -> None:
    quiet = row("straggler computes", "late_rank", right=True, blame="right")
    busy = {**row("straggler computes", "healthy", right=False, blame="nobody"), "others": 0.3}
    text = figures([quiet, busy], "some version")
    calm, _, rest = text.partition("### Busy machine")
    assert "| names the cause | 1 of 1 (" in calm and "| names the cause | 0 of 1 (" in rest


def test_the_interval_is_wilsons() -> None:
    # Newcombe 1998, Stat. Med. 17, 857: table I, method 3.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_accounts_that_do_not_add_up_are_counted() -> None:
    one = row("straggler computes", "late_rank", right=True, blame="right")
    text = figures([{**one, "account": [(10.0, 10.05, 0.2), (10.0, 9.5, 0.6)]}], "some version")
    assert "within 1% for 1 of 2 ranks (at most 5.00% apart)" in text
    assert "accounted for in 1 of 2 (at most 6.0%)" in text


def test_traces_judged_again_are_no_measurement() -> None:
    one = row("straggler computes", "late_rank", right=True, blame="right")
    assert "no measurement" in figures([{**one, "again": True}], "some version")
    assert "no measurement" not in figures([one], "some version")


def test_figures_replace_those_between_the_markers_only() -> None:
    page = f"before\n\n{BEGIN}\nold\n{END}\nafter\n"
    assert replace_part(page, "new") == f"before\n\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    with pytest.raises(ValueError, match="lacks"):
        replace_part("a page", "new")
