"""A run is healthy only where the evidence excludes a cost of 10% of a step."""

from pathlib import Path

import numpy as np
import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter, write_training

from pyddpdiag.analyse.exposure import exposure_of
from pyddpdiag.analyse.shares import Share, share_of_median, share_of_sums
from pyddpdiag.analyse.weigh.undecided import _open
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import exit_code, load_report


def write(
    folder: Path,
    exposed_ms: list[float],
    *,
    late_ms: list[float] | None = None,
    data_ms: float = 0.0,
    backward: bool = True,
) -> RunReport:
    """Two ranks, steps of 100 ms and what is exposed in each, after one that is warm-up; two buckets each.

    `late_ms`: by how much rank 1 comes later than rank 0.
    """
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now = 10**9
    late = late_ms or [0.0] * len(exposed_ms)
    for step, (exposed, more) in enumerate(zip([0.0, *exposed_ms], [0.0, *late], strict=True)):
        begin = now + int(data_ms * MS)
        arrived = now + int((100 + max(0.0, more)) * MS)
        end = arrived + int(exposed * MS)
        for rank, writer in enumerate(writers):
            mine = now + int((100 + (more if rank else 0)) * MS)
            writer.step(step, now, begin, end)
            if backward:
                writer.backward(step, begin, mine, end)
            writer.bucket(2 * step, now + 50 * MS, now + 50 * MS, now + 60 * MS, reference=1, step=step)
            writer.bucket(2 * step + 1, mine, arrived, end, reference=2, step=step)
        now = end
    return report_of(writers, folder)


def test_little_exposed_is_healthy_and_says_how_much(tmp_path: Path) -> None:
    report = write(tmp_path, [4.0] * 20)
    assert report.verdict.status == "healthy" and exit_code(report) == 0
    assert "holds up 4.00 ms of a step of 104 ms (4%)" in report.verdict.line


@pytest.mark.parametrize(("exposed_ms", "confidence"), [(15.0, "low"), (30.0, "low"), (40.0, "high")])
def test_what_costs_a_tenth_is_never_healthy(tmp_path: Path, exposed_ms: float, confidence: str) -> None:
    """13%, 23% and 29% of a step."""
    report = write(tmp_path, [exposed_ms] * 20)
    (found,) = report.verdict.findings
    assert (found.kind, found.severity, found.confidence) == ("exposed_communication", "warning", confidence)
    assert found.cost_ms == pytest.approx(exposed_ms)
    assert exit_code(report) == 1


def test_what_may_cost_a_tenth_is_undecided_and_asks_for_steps(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    report = write(tmp_path, [max(0.0, value) for value in random.normal(9.0, 8.0, 20)])
    assert (report.verdict.status, report.verdict.findings) == ("cannot_tell", ())
    assert exit_code(report) == 2
    assert "communication holds up" in report.verdict.line
    assert "20 steps are too few" in report.verdict.line and "Record about" in report.verdict.line


def test_a_few_long_steps_that_medians_do_not_see_are_not_healthy(tmp_path: Path) -> None:
    """Loss: most steps are fine, one in seven waits for a retransmission. 24% of the time."""
    report = write(tmp_path, [200.0 if step % 7 == 0 else 2.0 for step in range(140)])
    (found,) = report.verdict.findings
    assert (found.kind, found.confidence) == ("exposed_communication", "low")
    assert found.evidence["share_of_time"] == pytest.approx(0.234, abs=0.01)
    assert "on average" in found.message

    report = write(tmp_path / "three", [2000.0 if step in (20, 60, 100) else 2.0 for step in range(140)])
    assert (report.verdict.status, report.verdict.findings) == ("cannot_tell", ())
    assert "communication holds up 31% of the time, most of it in a few steps" in report.verdict.line

    report = write(tmp_path / "one", [400.0 if step == 5 else 2.0 for step in range(20)])
    assert (report.verdict.status, report.verdict.findings) == ("cannot_tell", ())
    assert "most of it in a few steps" in report.verdict.line


@pytest.mark.parametrize(("usual_ms", "is_typical"), [(30.0, True), (2.0, False)])
def test_what_is_exposed_is_a_part_of_a_step_of_its_own_kind(usual_ms: float, is_typical: bool) -> None:
    """An average of long steps is no part of the median step: "101 of 43 ms" once."""
    least = np.array([600.0 if step % 7 == 0 else usual_ms for step in range(140)])
    wall = least + 40.0
    step_ms = float(np.median(wall))
    exposure = exposure_of(least, wall, step_ms, can_judge=True)
    assert (exposure.is_found, exposure.is_typical) == (True, is_typical)
    assert exposure.cost_ms / exposure.step_ms == pytest.approx(exposure.share)


def test_lateness_that_may_be_a_tenth_is_not_healthy(tmp_path: Path) -> None:
    late = [25.0 if step % 5 in (0, 2) else 0.0 for step in range(20)]
    report = write(tmp_path, [4.0] * 20, late_ms=late)
    assert report.verdict.status == "cannot_tell"
    assert "rank 1 is late by 0.00 ms to 25.0 ms of a step of" in report.verdict.line


def test_a_rank_that_is_mostly_the_last_is_named_where_some_rank_is_late(tmp_path: Path) -> None:
    """By how much it is late is not sure, and that it is the last one in 80% of the steps is."""
    late = [-30.0 if step % 5 == 0 else 8.0 if step % 5 == 2 else 20.0 for step in range(60)]
    report = write(tmp_path / "mostly", [40.0] * 60, late_ms=late)
    found = {finding.kind: finding for finding in report.verdict.findings}
    assert "uneven_ranks" not in found
    assert (found["late_rank"].rank, found["late_rank"].confidence) == (1, "low")

    in_turn = [20.0 if step % 2 else -20.0 for step in range(60)]
    report = write(tmp_path / "in turn", [40.0] * 60, late_ms=in_turn)
    found = {finding.kind: finding for finding in report.verdict.findings}
    assert "uneven_ranks" in found and "late_rank" not in found


def test_waiting_for_data_between_a_tenth_and_a_fifth_is_a_finding_of_low_confidence(tmp_path: Path) -> None:
    report = write(tmp_path, [4.0] * 20, data_ms=15.0)
    assert [(found.kind, found.confidence) for found in report.verdict.findings] == [("data_wait", "low")]


def test_without_backward_records_exposure_is_not_known_and_nothing_is_healthy(tmp_path: Path) -> None:
    report = write(tmp_path, [4.0] * 20, backward=False)
    assert report.verdict.status == "cannot_tell" and "not known" in report.verdict.line


def test_without_step_records_data_wait_is_said_to_be_unknown(tmp_path: Path) -> None:
    write_training(tmp_path, steps=20, step_records=False)
    report = load_report(tmp_path)
    assert report.verdict.status == "healthy" and "was not recorded (recorder.steps)" in report.verdict.line


def test_bounds_hold_the_true_share() -> None:
    """The true median and the true ratio lie within the bounds in 97% and 95% of samples."""
    random = np.random.default_rng(3)
    missed = {"median": 0, "sums": 0}
    for _ in range(1000):
        whole = random.lognormal(0.0, 0.3, 60)
        share = share_of_median(whole, 1.0)
        missed["median"] += not share.at_least <= 1.0 <= share.at_most
        part = 0.1 * whole * random.lognormal(-0.125, 0.5, 60)
        ratio = share_of_sums(part, whole)
        missed["sums"] += not ratio.at_least <= 0.1 <= ratio.at_most
    assert missed["median"] <= 30 and missed["sums"] <= 50


def test_how_many_steps_would_tell() -> None:
    share = share_of_median(np.linspace(0.0, 0.16, 21), 1.0)
    asked = share.steps_to_tell(0.10)
    assert asked is not None and 40 <= asked <= 200
    assert share.steps_to_tell(0.0801) is None


def test_what_only_the_sum_shows_is_an_average_and_stands_beside_the_median() -> None:
    """Tables hold medians: a mean without a word beside them looks like a contradiction."""
    least = np.array([2.0] * 13 + [8.0] * 7)
    some = exposure_of(least, np.full(20, 22.0), 22.0, can_judge=True)
    assert not some.is_typical
    assert some.of_step == "4.10 ms of 22.0 ms per step on average (2.00 ms of 22.0 ms in a typical one)"
    every = exposure_of(np.full(20, 8.0), np.full(20, 22.0), 22.0, can_judge=True)
    assert every.of_step == "8.00 ms of 22.0 ms per step"


def test_what_surely_matters_is_not_said_to_be_open() -> None:
    surely = _open(Share(0.125, 0.118, 0.135, 219), 23.1, "waiting for cores holds up")
    assert "more than 10% of it" in surely and "too few" not in surely
    assert "too few to tell" in _open(Share(0.125, 0.08, 0.17, 219), 23.1, "waiting for cores holds up")
