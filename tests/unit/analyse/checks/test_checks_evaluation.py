"""Evaluations that every rank makes in full, and innocent ones that look like them, from written traces."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report

STEPS, EPOCH = 24, 6
S = 10**9
NO_BATCH = 16


def evaluation(**change: Any) -> dict[str, Any]:
    """Three passes of 300 ms each, over data that others have as well."""
    return {
        "sampler": "SequentialSampler",
        "distributed": False,
        "length": 2000,
        "batch_size": 8,
        "epochs": 0,
        "distinct": 0,
        "where": "train.py:41",
        "passes": 3,
        "seconds": 0.9,
        "marks": "11111111" * 3,
        **change,
    }


def write(folder: Path, *ranks: Sequence[Mapping[str, Any]], pause_ms: float = 300.0) -> RunReport:
    """So many ranks with these evaluations; steps of 40 ms, and a pause of all ranks after each epoch."""
    writers = [RankWriter(rank, len(ranks), monotonic_ns=S, wall_ns=1_000 * S) for rank in range(len(ranks))]
    now = S
    for step in range(STEPS):
        for writer in writers:
            begin, done = now + MS, now + 31 * MS
            writer.step(step, now, begin, done + 10 * MS)
            writer.add(3, times=(begin, begin, done, done + 5 * MS, begin, begin + MS), step=step)
            writer.bucket(step, done - 5 * MS - writer.rank * MS, done, done + 2 * MS, step=step)
        now += 41 * MS
        if step % EPOCH == EPOCH - 1:
            for writer in writers:
                writer.step(step + 1, now, 0, now, flags=NO_BATCH)
            now += int(pause_ms * MS)
    for writer, seen in zip(writers, ranks, strict=True):
        writer.sidecar["training"] = {"evaluations": list(seen)}
        writer.write(folder)
    return load_report(folder)


def kinds(report: RunReport) -> list[str]:
    return [each.kind for each in report.verdict.findings if each.kind in ("full_evaluation", "pause")]


@pytest.mark.parametrize("ranks", [2, 4])
def test_an_evaluation_that_every_rank_makes_in_full_has_its_line_and_what_parts_would_save(
    tmp_path: Path, ranks: int
) -> None:
    report = write(tmp_path, *[[evaluation()]] * ranks)
    found = report.verdict.findings[0]
    assert (found.kind, found.severity, found.confidence) == ("full_evaluation", "warning", "high")
    assert (found.rank, found.where) == (None, "train.py:41")
    saved = 0.9 * (1 - 1 / ranks)
    assert found.cost_s == pytest.approx(saved) and found.evidence["saved_s"] == pytest.approx(saved)
    assert "the same 2000 samples (SequentialSampler), 3 times: each of" in found.message
    assert report.verdict.line.startswith(
        "For 0.9 of 1.9 s every rank evaluates all of the data at train.py:41"
    )
    assert "DistributedSampler(dataset, shuffle=False)" in found.advice
    # The pause is that evaluation, and is not named a second time.
    assert kinds(report) == ["full_evaluation"]


def test_a_pause_that_is_mostly_something_else_is_named_as_well(tmp_path: Path) -> None:
    report = write(tmp_path, *[[evaluation()]] * 2, pause_ms=900.0)
    assert sorted(kinds(report)) == ["full_evaluation", "pause"]


@pytest.mark.parametrize(
    "other",
    [
        [],
        [evaluation(marks="11111111" * 2 + "22222222")],  # another part of the data
        [evaluation(marks="00000000" * 3)],  # nobody could read them
        [evaluation(length=1999)],
        [evaluation(where="train.py:57")],
    ],
)
def test_ranks_that_evaluate_other_data_are_innocent(tmp_path: Path, other: list[dict[str, Any]]) -> None:
    assert kinds(write(tmp_path, [evaluation()], other)) == ["pause"]


def test_nor_are_parts_of_the_data_unreadable_batches_or_a_single_rank(tmp_path: Path) -> None:
    parts = [[evaluation(distributed=True, replicas=2, rank=0)]] * 2
    assert kinds(write(tmp_path / "parts", *parts)) == ["pause"]
    assert kinds(write(tmp_path / "unread", *[[evaluation(marks="00000000" * 3)]] * 2)) == ["pause"]
    assert "full_evaluation" not in kinds(write(tmp_path / "one", [evaluation()]))


def test_what_costs_little_is_a_note_or_nothing(tmp_path: Path) -> None:
    report = write(tmp_path / "note", *[[evaluation(seconds=0.09)]] * 2, pause_ms=30.0)
    (note,) = (each for each in report.verdict.findings if each.kind == "full_evaluation")
    assert note.severity == "note"
    assert kinds(write(tmp_path / "nothing", *[[evaluation(seconds=0.01)]] * 2, pause_ms=3.0)) == []


def test_several_loaders_are_one_finding_and_ranks_count_as_far_as_the_quickest_came(tmp_path: Path) -> None:
    more = evaluation(where="train.py:60", seconds=0.3, passes=1, marks="33333333")
    # It was killed during its fourth pass.
    behind = evaluation(passes=2, seconds=0.8, marks="11111111" * 2)
    report = write(tmp_path, [evaluation(), more], [behind, more])
    found = report.verdict.findings[0]
    assert found.kind == "full_evaluation" and "2 times, and 1 more loader likewise:" in found.message
    assert found.evidence["took_s"] == pytest.approx(0.6 + 0.3)
    assert (found.evidence["passes"], found.evidence["passes_compared"]) == (2, 2)


def test_what_stands_twice_in_one_file_is_not_what_two_ranks_did(tmp_path: Path) -> None:
    assert kinds(write(tmp_path, [evaluation()], [evaluation()] * 2, [])) == ["pause"]


@pytest.mark.parametrize("bad", [{"passes": 0}, {"passes": 2**60, "seconds": 1e308}, {"marks": "1"}])
def test_no_file_makes_the_report_fail(tmp_path: Path, bad: dict[str, Any]) -> None:
    write(tmp_path, [evaluation(**bad)], [evaluation(**bad)])
