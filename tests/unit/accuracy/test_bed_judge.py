"""The judge of the bed of faults: what counts as right, as nobody blamed and as a false alarm."""

from __future__ import annotations

from typing import Any

import pytest
from bed.causes import CAUSES
from bed.judge import judge
from bed.truth import Answer, Truth, family

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
