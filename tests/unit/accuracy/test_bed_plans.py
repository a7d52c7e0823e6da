"""The bed of faults: what it runs, drawn from seeds; how busy the machine is beside; and how its judge counts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

import psutil
import pytest
from bed import beside
from bed.causes import CAUSES
from bed.jobs import HEALTHY, MODELS, half_models, half_of
from bed.judge import judge
from bed.page import BEGIN, END, figures, replace_part, wilson
from bed.runner import Outcome, Plan, plans
from bed.truth import Answer, Truth, family


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


LATE = Truth((Answer("late_rank", "compute"),), 1)
LINK = Truth((Answer("slow_link"),), 2)
DATA = Truth((Answer("data_wait"),))


def report(*findings: dict[str, Any], status: str = "findings") -> dict[str, Any]:
    usual = {"severity": "warning", "confidence": "high", "rank": None, "peer": None, "cause": None}
    return {"verdict": {"status": status, "findings": [{**usual, **one} for one in findings]}}


@pytest.mark.parametrize(
    ("finding", "truth", "kind", "cause", "blame"),
    [
        ({"kind": "late_rank", "rank": 1, "cause": "compute"}, LATE, True, True, "right"),
        ({"kind": "late_rank", "rank": 1}, LATE, True, False, "right"),
        ({"kind": "late_rank", "rank": 0, "cause": "compute"}, LATE, True, True, "another"),
        ({"kind": "exposed_communication"}, LATE, False, False, "nobody"),
        ({"kind": "slow_link", "rank": 0, "peer": 2}, LINK, True, True, "right"),
        ({"kind": "slow_link", "rank": 0, "peer": 1}, LINK, True, True, "another"),
        ({"kind": "data_wait"}, DATA, True, True, "right"),
        ({"kind": "data_wait", "rank": 0}, DATA, True, True, "another"),
    ],
)
def test_the_first_finding_is_judged(
    finding: dict[str, Any], truth: Truth, kind: bool, cause: bool, blame: str
) -> None:
    found = judge(report(finding, {"kind": "pause"}), truth)
    assert (found.said, found.kind, found.cause, found.blame) == (finding["kind"], kind, cause, blame)


def test_where_two_causes_look_alike_the_report_must_name_both() -> None:
    truth = Truth((Answer("wrong_interface"), Answer("exposed_communication", beside="wrong_interface")))
    exposed, note = {"kind": "exposed_communication"}, {"kind": "wrong_interface", "severity": "note"}
    assert judge(report(exposed, note), truth).cause
    assert not judge(report(exposed), truth).cause
    assert judge(report({"kind": "wrong_interface"}), truth).cause


def test_a_neighbour_of_the_cause_is_of_the_right_class() -> None:
    assert judge(report({"kind": "exposed_communication"}), LINK).family
    assert not judge(report({"kind": "exposed_communication"}), LATE).family


def test_nobody_is_right_where_all_ranks_were_struck() -> None:
    found = {"kind": "core_contention"}
    shared = Truth((Answer("core_contention"),), 1, shared=True)
    assert judge(report(found), shared).blame == judge(report({**found, "rank": 1}), shared).blame == "right"
    assert judge(report({**found, "rank": 0}), shared).blame == "another"


def test_either_of_two_culprits_is_right() -> None:
    two = Truth((Answer("late_rank"),), 1, also=2)
    blames = [judge(report({"kind": "late_rank", "rank": rank}), two).blame for rank in (0, 1, 2)]
    assert blames == ["another", "right", "right"]


def test_a_link_across_a_slow_path_is_right_and_one_within_a_host_is_not() -> None:
    path = Truth((Answer("slow_link"),), apart=(0, 1))
    assert judge(report({"kind": "slow_link", "rank": 1, "peer": 2}), path).blame == "right"
    assert judge(report({"kind": "slow_link", "rank": 0, "peer": 1}), path).blame == "another"
    assert judge(report({"kind": "slow_link", "rank": 2, "peer": 3}), path).blame == "another"


def test_a_single_bucket_that_no_cap_divides_only_says_what_is_exposed() -> None:
    whole = {"kind": "single_bucket", "evidence": {"bucket_cap_mb": None}}
    split = {"kind": "single_bucket", "evidence": {"bucket_cap_mb": 4.0}}
    healthy = Truth()
    assert judge(report(whole), healthy).alarms == ("exposed_communication",)
    assert not judge(report(whole), healthy, cost=1.6).alarms
    assert judge(report(split), healthy, cost=1.6).alarms == ("single_bucket",)


@pytest.mark.parametrize("status", ["healthy", "cannot_tell"])
def test_a_fault_without_a_finding_is_missed(status: str) -> None:
    found = judge(report(status=status), LATE)
    assert (found.said, found.kind, found.family, found.blame) == (status, False, False, "nobody")


def test_a_note_under_a_healthy_headline_names_nothing() -> None:
    found = judge(report({"kind": "uneven_ranks", "severity": "note", "rank": 1}, status="healthy"), LATE)
    assert (found.said, found.family, found.blame) == ("healthy", False, "nobody")


def test_a_healthy_run_alarms_by_what_is_sure_and_no_note() -> None:
    low = {"kind": "episodic_rank", "confidence": "low", "rank": 0}
    note = {"kind": "uneven_ranks", "severity": "note"}
    quiet = judge(report(note, low), Truth())
    assert quiet.cause and quiet.alarms == ()
    loud = judge(report(note, {"kind": "late_rank", "rank": 0}), Truth())
    assert not loud.cause and loud.alarms == ("late_rank",)
    assert judge(report(status="healthy"), Truth()).cause
    assert not judge(report(status="cannot_tell"), Truth()).cause


@pytest.mark.parametrize("kind", ["exposed_communication", "loopback"])
def test_exposed_communication_is_true_where_a_healthy_run_communicates(kind: str) -> None:
    found = report({"kind": kind})
    assert judge(found, Truth(), 1.2).alarms == (kind,)
    assert judge(found, Truth(), 1.5).alarms == ()


def test_every_answer_belongs_to_one_class() -> None:
    import random

    from bed.jobs import draw

    for cause in CAUSES.values():
        truth = cause.draw(random.Random(1), draw(random.Random(1), "open")).truth
        assert truth.answers and len({family(answer.kind) for answer in truth.answers} - {""}) == 1, (
            cause.name
        )


BUSY = "import time\nwhile time.process_time() < 0.4: pass"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps no times of a process's ended children")
def test_what_the_runs_own_processes_took_is_its_own_after_they_ended() -> None:
    begin = beside._own_s()
    # A process of a process, as ranks are that a server has forked.
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}], check=True)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert beside._own_s() - begin >= 0.4


def test_the_rest_is_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"busy": 100.0, "own": 20.0, "now": 1000.0}
    monkeypatch.setattr(beside, "_busy_s", lambda: at["busy"])
    monkeypatch.setattr(beside, "_own_s", lambda: at["own"])
    monkeypatch.setattr(time, "monotonic", lambda: at["now"])
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    counted = beside.Beside()
    at.update(busy=130.0, own=40.0, now=1010.0)
    assert counted.share() == pytest.approx(10 / 40)
    # Clocks of the system and of processes tick apart: never less than nothing.
    at.update(busy=110.0)
    assert counted.share() == 0.0
