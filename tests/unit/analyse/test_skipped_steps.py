"""Ranks that skip a backward pass, or a part of it: named with the step in which they went astray."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.trace_writer import IN_FLIGHT, MS, RankWriter

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report

STEPS = 12
BUCKETS = 2


def write(
    folder: Path,
    skips: Mapping[int, Mapping[int, int]],
    *,
    ranks: int = 2,
    steps: Mapping[int, int] | None = None,
    waiting: tuple[int, ...] = (),
    first: Mapping[int, int] | None = None,
    raised: Mapping[int, int] | None = None,
    **header: Mapping[int, int],
) -> RunReport:
    """Each rank has two buckets per step; `skips` gives, by rank and step, how many of them it does not have.

    `steps` changes how many steps a rank has. `waiting` ranks begin one more bucket that does not end. Of a rank in
    `first`, the ring has kept the steps from there on, and of this one only what comes after its first bucket.
    `raised`: by rank, the step in which its forward pass raised something.
    """
    for rank in range(ranks):
        fields = {name: values[rank] for name, values in header.items() if rank in values}
        writer = RankWriter(rank, ranks, **fields)  # type: ignore[arg-type]
        sequence = 0
        count = (steps or {}).get(rank, STEPS)
        for step in range(count):
            now = (1 + step) * 100 * MS
            kept = (first or {}).get(rank, -1)
            if step < kept:
                sequence += BUCKETS
                continue
            writer.step(step, now, now, now + 90 * MS)
            writer.backward(step, now, now + 80 * MS, now + 82 * MS)
            for place in range(BUCKETS - skips.get(rank, {}).get(step, 0)):
                begin = now + (40 + 20 * place) * MS
                if step != kept or place:
                    writer.bucket(sequence, begin, begin, begin + 10 * MS, reference=place, step=step)
                sequence += 1
        if rank in waiting:
            begin = (1 + count) * 100 * MS
            writer.bucket(sequence, begin, begin, 0, reference=0, step=count, state=IN_FLIGHT)
        if raised and rank in raised:
            one = {"step": raised[rank], "error": "RuntimeError", "where": "train.py:40"}
            writer.sidecar["training"] = {"raised": [one]}
        writer.write(folder)
    return load_report(folder)


def only(report: RunReport) -> Finding:
    """The finding about skipped all-reduces; where it knows the step, it comes before what that led to."""
    found = [each for each in report.verdict.findings if each.kind == "fewer_all_reduces"]
    assert len(found) == 1 and report.verdict.status == "findings"
    assert found[0].since_step is None or report.verdict.findings[0] is found[0]
    return found[0]


def test_a_skipped_backward_pass_is_named_with_its_step(tmp_path: Path) -> None:
    found = only(write(tmp_path, {1: {7: 2}}))
    assert (found.rank, found.since_step, found.confidence) == (1, 7, "high")
    assert (found.evidence["fewer"], found.evidence["step"]) == (2, 7)
    assert "in step 7 it has no bucket" in found.message


@pytest.mark.parametrize("step, is_why", [(7, True), (6, False)])
def test_what_the_forward_pass_raised_in_that_step_is_why(tmp_path: Path, step: int, is_why: bool) -> None:
    found = only(write(tmp_path, {1: {7: 2}}, raised={1: step}))
    why = "as its forward pass raised RuntimeError at train.py:40, which the script caught"
    assert (why in found.message) == is_why == (found.where == "train.py:40")


def test_some_buckets_of_a_pass_that_one_rank_does_not_have(tmp_path: Path) -> None:
    found = only(write(tmp_path, {2: {4: 1, 6: 1}}, ranks=3))
    assert (found.rank, found.since_step) == (2, 4)
    assert "in step 4 it has 1 bucket and not 2, the first of 2 such steps" in found.message


def test_of_two_ranks_the_one_that_went_astray_first(tmp_path: Path) -> None:
    found = only(write(tmp_path, {0: {9: 2}, 1: {5: 1}}, ranks=3))
    assert (found.rank, found.since_step, found.evidence["ranks_behind"]) == (1, 5, 2)


def test_ranks_that_skip_in_turn_add_up_gradients_of_different_steps(tmp_path: Path) -> None:
    """Nobody is behind in the end, and every pair has the same sizes: silently wrong."""
    found = only(write(tmp_path, {0: {8: 2}, 1: {3: 2}}))
    assert (found.rank, found.since_step, found.confidence) == (1, 3, "medium")
    assert (
        "gradients of different steps were added up" in found.message
        and "rank 0 did so later" in found.message
    )


def test_the_rank_that_waits_is_not_lost_and_the_one_that_skipped_is_named(tmp_path: Path) -> None:
    """One rank has closed and made fewer all-reduces, the other waits and never closed: it did all right."""
    report = write(tmp_path, {1: {4: 2}}, waiting=(0,), closed={0: 0})
    assert [found.kind for found in report.verdict.findings if found.severity == "error"] == [
        "fewer_all_reduces"
    ]
    assert (report.verdict.findings[0].rank, report.verdict.findings[0].since_step) == (1, 4)


def test_a_rank_that_skipped_is_named_where_no_rank_has_closed(tmp_path: Path) -> None:
    report = write(tmp_path, {1: {4: 2}}, ranks=3, waiting=(0, 2), closed={0: 0, 1: 0, 2: 0})
    assert only(report).rank == 1


@pytest.mark.parametrize("counter", ["skipped", "dropped"])
def test_a_rank_that_paused_or_lost_records_is_not_blamed(tmp_path: Path, counter: str) -> None:
    report = write(tmp_path, {1: {7: 2}}, **{counter: {1: 2}})
    assert all(found.since_step != 7 for found in report.verdict.findings)


def test_all_ranks_without_a_bucket_accumulate(tmp_path: Path) -> None:
    skips = {step: 2 for step in range(STEPS) if step % 3}
    assert write(tmp_path, {0: skips, 1: skips}).verdict.findings == ()


def test_steps_that_only_one_rank_marks_are_not_skipped_ones(tmp_path: Path) -> None:
    """Rank 0 marks the steps of an evaluation that it alone makes: its numbers run ahead of the others'."""
    report = write(tmp_path, {0: {5: 2, 6: 2, 7: 2}}, steps={0: STEPS + 3})
    assert [found.kind for found in report.verdict.findings if found.severity == "error"] == []


def test_a_rank_that_does_more_in_a_step_is_not_what_the_others_skipped(tmp_path: Path) -> None:
    report = write(tmp_path, {0: {5: -2}, 1: {6: 0}})
    assert only(report).since_step is None


def test_the_step_that_a_ring_has_kept_in_part_is_not_a_skipped_one(tmp_path: Path) -> None:
    report = write(tmp_path, {}, first={1: 4}, overwritten={1: 17})
    assert [found.kind for found in report.verdict.findings] == []
