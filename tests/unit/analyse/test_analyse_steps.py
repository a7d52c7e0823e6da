from pathlib import Path

import numpy as np
import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter, write_training

from pyddpdiag.analyse.spans import Coverage
from pyddpdiag.errors import UsageError
from pyddpdiag.model.steps import StepTable
from pyddpdiag.pipeline import load_report


def column(steps: StepTable, name: str, step: int, rank: int = 0) -> float | None:
    row = np.flatnonzero((steps.step == step) & (steps.rank == rank))
    assert len(row) == 1
    value = float(getattr(steps, name)[row[0]])
    return None if np.isnan(value) else value


def test_every_number_of_one_step(tmp_path: Path) -> None:
    """Wait for data 0-4, backward done at 30, two buckets, the last of them ends at 37, step ends at 40."""
    writer = RankWriter()
    base = 1000 * MS
    writer.step(0, base, base + 4 * MS, base + 40 * MS)
    writer.backward(0, base + 15 * MS, base + 30 * MS, base + 38 * MS)
    writer.bucket(0, base + 20 * MS, base + 21 * MS, base + 29 * MS, step=0)
    writer.bucket(1, base + 28 * MS, base + 30 * MS, base + 37 * MS, step=0)
    steps = report_of([writer], tmp_path).steps
    assert column(steps, "wall_ms", 0) == 40.0
    assert column(steps, "data_wait_ms", 0) == 4.0
    assert column(steps, "exposed_ms", 0) == 7.0
    assert column(steps, "compute_ms", 0) == 29.0
    assert column(steps, "buckets", 0) == 2
    assert column(steps, "bytes", 0) == 8_000_000
    assert column(steps, "own_ms", 0) is None
    assert steps.source == "step records"


def test_communication_that_ends_before_backward_is_not_exposed(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.backward(0, 10 * MS, 50 * MS, 51 * MS)
    writer.bucket(0, 20 * MS, 21 * MS, 40 * MS)
    assert column(report_of([writer], tmp_path).steps, "exposed_ms", 0) == 0.0


def test_several_passes_in_a_step_are_distinguished_and_added(tmp_path: Path) -> None:
    """Two passes of one module and one of another, all in step 0: exposed 3 + 5 + 2 ms."""
    writer = RankWriter()
    for sequence, (module, finalize, ended) in enumerate(((0, 20, 23), (0, 40, 45), (1, 60, 62))):
        writer.bucket(sequence, (finalize - 5) * MS, (finalize - 4) * MS, ended * MS, step=0, module=module)
        writer.backward(0, (finalize - 10) * MS, finalize * MS, (ended + 1) * MS, module=module)
    assert column(report_of([writer], tmp_path).steps, "exposed_ms", 0) == pytest.approx(10.0)


def test_pass_of_another_step_is_no_substitute(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 10 * MS, 11 * MS, 15 * MS, step=0)
    writer.backward(1, 30 * MS, 40 * MS, 41 * MS)
    report = report_of([writer], tmp_path)
    assert column(report.steps, "exposed_ms", 0) is None
    assert report.buckets[0].times.hidden_fraction.median is None


def test_without_step_records_a_step_goes_from_end_to_end(tmp_path: Path) -> None:
    write_training(tmp_path, step_records=False, wire_ms=2.0)
    report = load_report(tmp_path)
    assert report.steps.source == "backward passes"
    assert column(report.steps, "wall_ms", 0) is None
    assert column(report.steps, "wall_ms", 1) == pytest.approx(23.5)
    assert column(report.steps, "data_wait_ms", 1) is None
    assert any("no step records" in warning for warning in report.warnings)


def test_without_backward_records_exposure_is_not_known(tmp_path: Path) -> None:
    writer = RankWriter()
    for step in range(6):
        begin = (1 + step) * 50 * MS
        writer.bucket(step, begin, begin, begin + MS)
    report = report_of([writer], tmp_path)
    assert report.steps.source == "buckets"
    assert np.isnan(report.steps.exposed_ms).all()
    assert column(report.steps, "wall_ms", 3) == 50.0
    assert report.ranks[0].exposed_ms.median is None


def test_step_without_a_batch_is_no_step(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.step(0, 10, 20, 30)
    writer.step(1, 40, 0, 0, flags=16)
    rank = report_of([writer], tmp_path).ranks[0]
    assert (rank.steps, rank.last_step) == (1, 0)


def test_no_steps_at_all(tmp_path: Path) -> None:
    RankWriter().write(tmp_path)
    rank = load_report(tmp_path).ranks[0]
    assert (rank.steps, rank.last_step) == (0, None)


@pytest.mark.parametrize(("steps", "left_out"), [(4, ()), (5, (0,))])
def test_first_step_is_left_out_of_medians_when_there_are_enough(
    tmp_path: Path, steps: int, left_out: tuple[int, ...]
) -> None:
    writer = RankWriter()
    for step in range(steps):
        begin = (1 + step) * 10_000 * MS
        took = (1000 if step == 0 else 10) * MS
        writer.step(step, begin, begin, begin + took)
        writer.bucket(step, begin, begin, begin + took)
    report = report_of([writer], tmp_path)
    assert report.steps.left_out == left_out
    assert report.ranks[0].wall_ms.p95 == pytest.approx(10.0) or not left_out
    assert report.buckets[0].count == steps
    assert report.buckets[0].judged == steps - len(left_out)
    assert any("leave out step 0" in warning for warning in report.warnings) == bool(left_out)


def test_step_that_the_ring_has_partly_overwritten_is_left_out(tmp_path: Path) -> None:
    writer = RankWriter(capacity=21)
    for step in range(20):
        begin = (1 + step) * 100 * MS
        for index in range(2):
            writer.bucket(2 * step + index, begin, begin, begin + MS, step=step)
    report = report_of([writer], tmp_path)
    assert report.steps.step.tolist() == list(range(9, 20))
    assert report.steps.left_out == (9,)
    assert "medians leave out step 9 (not all of their records are there)." in report.warnings


def test_bucket_of_the_first_layout_is_kept_and_marked(tmp_path: Path) -> None:
    writer = RankWriter()
    for step in range(8):
        begin = (1 + step) * 100 * MS
        writer.bucket(step, begin, begin, begin + MS, reference=1 if step == 0 else 2)
    buckets = {bucket.bucket: bucket for bucket in report_of([writer], tmp_path).buckets}
    first, later = buckets[f"{1:016x}"], buckets[f"{2:016x}"]
    assert (first.first_steps_only, first.count, first.judged) == (True, 1, 1)
    assert first.times.total_ms.median == 1.0
    assert (later.first_steps_only, later.count, later.judged) == (False, 7, 7)


def test_own_time_leaves_out_waiting_in_other_collectives(tmp_path: Path) -> None:
    """Between leaving at 12 and entering at 40 lie two overlapping broadcasts of 20-26 and 24-30."""
    writer = RankWriter()
    writer.bucket(0, 10 * MS, 11 * MS, 12 * MS)
    writer.collective("gloo:broadcast", 20 * MS, 26 * MS)
    writer.collective("gloo:broadcast", 24 * MS, 30 * MS)
    writer.bucket(1, 40 * MS, 41 * MS, 42 * MS)
    assert column(report_of([writer], tmp_path).steps, "own_ms", 1) == 18.0


def test_coverage_agrees_with_counting_every_nanosecond() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        start = random.integers(0, 60, random.integers(1, 8))
        end = start + random.integers(0, 20, len(start))
        covered = np.zeros(100, bool)
        for low, high in zip(start.tolist(), end.tolist(), strict=True):
            covered[low:high] = True
        begin = random.integers(0, 90, 5)
        until = begin + random.integers(0, 10, 5)
        expected = [int(covered[b:u].sum()) for b, u in zip(begin.tolist(), until.tolist(), strict=True)]
        assert Coverage(start, end).within(begin, until).tolist() == expected


def test_narrowed_to_one_step(tmp_path: Path) -> None:
    write_training(tmp_path, late_ms={1: 15.0})
    whole, one = load_report(tmp_path), load_report(tmp_path, step=0)
    assert set(one.steps.step.tolist()) == {0}
    assert {bucket.count for bucket in one.buckets} == {1}
    assert one.ranks[0].steps == whole.ranks[0].steps == 12
    assert one.verdict == whole.verdict


def test_step_that_is_not_there(tmp_path: Path) -> None:
    write_training(tmp_path, steps=6)
    with pytest.raises(UsageError, match="step 99") as caught:
        load_report(tmp_path, step=99)
    assert "0 to 5" in caught.value.hint


def test_narrowed_to_a_bucket(tmp_path: Path) -> None:
    write_training(tmp_path, buckets=3)
    chosen = load_report(tmp_path, bucket="layer2.w").buckets
    assert [bucket.parameters for bucket in chosen] == [("layer2.weight",)]
    assert load_report(tmp_path, bucket=chosen[0].bucket[:10]).buckets == chosen
    with pytest.raises(UsageError, match="no bucket"):
        load_report(tmp_path, bucket="nonsense")
