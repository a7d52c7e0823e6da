"""What the bed of faults runs: drawn from seeds, in two halves that share neither seeds nor models."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from bed.causes import CAUSES
from bed.jobs import HEALTHY, MODELS, half_of
from bed.page import BEGIN, END, figures, replace_part
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
    assert {plan.drawn().job.model for plan in early} == set(MODELS["open"])
    assert {plan.drawn().job.model for plan in final} == set(MODELS["held out"])
    assert set(MODELS["open"]).isdisjoint(MODELS["held out"])


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
        row("healthy", "healthy", right=True, blame="right", kind="plain"),
    ]
    text = figures(rows, "some version")
    assert "| names the cause | 2 of 3 (67%) |" in text
    assert "| names the cause and the culprit | 1 of 3 (33%) |" in text
    assert "| blames another rank | 1 of 3 (33%) |" in text
    assert "| says healthy | 1 of 3 (33%) |" in text
    assert "| healthy runs without an alarm | 1 of 1 (100%) |" in text
    assert "less than 10% of the step: straggler computes 1." in text
    assert "| straggler computes | 2 | 1.50 | 1 | 1 | 0 | late_rank 1, healthy 1 |" in text
    assert "| plain | 1 | none | 15% |" in text


def test_figures_replace_those_between_the_markers_only() -> None:
    page = f"before\n\n{BEGIN}\nold\n{END}\nafter\n"
    assert replace_part(page, "new") == f"before\n\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    with pytest.raises(ValueError, match="lacks"):
        replace_part("a page", "new")
