"""Collectives other than buckets into which the ranks put different things."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.reported import report_of
from support.trace_writer import IN_FLIGHT, MS, RankWriter

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report

FLOAT, DOUBLE = 1, 2
LOADER = {"sampler": "RandomSampler", "distributed": False, "batch_size": 8, "epochs": 1, "distinct": 0}


def findings(
    folder: Path, calls: Sequence[Sequence[tuple[int, int]]], name: str = "gloo:broadcast"
) -> list[Finding]:
    """Each rank's calls, as bytes and dtype."""
    for rank, mine in enumerate(calls):
        writer = RankWriter(rank, len(calls))
        for number, (size, dtype) in enumerate(mine):
            begin = 10**9 + number * MS
            writer.collective(
                name, begin, begin + MS // 2, bytes=size, dtype=dtype, sequence=number, step=number // 2
            )
        writer.write(folder)
    found = load_report(folder).verdict.findings
    return [finding for finding in found if finding.kind == "mismatched_all_reduce"]


ALIKE = [(32, FLOAT)] * 6


@pytest.mark.parametrize(("other", "field"), [((64, FLOAT), "bytes"), ((32, DOUBLE), "dtype")])
def test_the_first_call_that_differs_is_reported_with_its_rank(
    tmp_path: Path, other: tuple[int, int], field: str
) -> None:
    (found,) = findings(tmp_path, [ALIKE, [*ALIKE[:4], other, *ALIKE[5:]], ALIKE])
    assert (found.rank, found.since_step, found.evidence["sequence"]) == (1, 2, 4)
    assert (found.evidence["operation"], found.evidence["calls"]) == ("gloo:broadcast", 1)
    what = {"bytes": "their sizes in bytes", "dtype": "the types of their elements"}[field]
    assert f": {what} differ in 1 call in step 2 (rank 0: " in found.message
    (mismatch,) = load_report(tmp_path).mismatches
    assert (mismatch.operation, mismatch.field) == ("gloo:broadcast", field)


def test_of_two_ranks_neither_is_blamed(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, [ALIKE, [*ALIKE[:5], (64, FLOAT)]])
    assert found.rank is None


def test_where_gloo_aborts_a_rank_the_call_with_both_sizes_comes_first(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2, closed=0)
        for number in range(6):
            begin, size = 10**9 + number * MS, 20 if (rank, number) == (1, 5) else 4
            facts = {"bytes": size, "sequence": number, "step": number}
            writer.collective("gloo:all_reduce", begin, begin + MS // 2, **facts)
        if rank == 0:
            text = "op.preamble.length <= op.nbytes. 8 vs 4. Received data size doesn't match expected size."
            writer.sidecar["end"] = {"signal": "SIGABRT", "message": text, "at_ns": 10**9 + 7 * MS}
        writer.write(tmp_path)
    verdict = load_report(tmp_path).verdict
    assert [one.kind for one in verdict.findings][:2] == ["mismatched_all_reduce", "rank_lost"]
    assert verdict.findings[0].confidence == "certain"
    assert "(rank 0: 4, rank 1: 20). Gloo then aborted rank 0." in verdict.line


def test_neighbours_in_another_order_are_the_same_calls(tmp_path: Path) -> None:
    calls = [(32, FLOAT), (64, FLOAT), (8, DOUBLE), (16, FLOAT)]
    swapped = [calls[1], calls[0], calls[2], calls[3]]
    assert findings(tmp_path, [calls, swapped, calls]) == []


def test_operations_to_which_ranks_give_different_amounts_are_not_compared(tmp_path: Path) -> None:
    assert findings(tmp_path, [ALIKE, [(64, FLOAT)] * 6], name="gloo:scatter") == []


def test_a_rank_with_fewer_calls_is_not_compared(tmp_path: Path) -> None:
    """It may have missed any of them."""
    assert findings(tmp_path, [ALIKE, [(64, FLOAT)] * 5]) == []


def unequal(
    folder: Path,
    calls: Sequence[int],
    buckets: Sequence[int],
    name: str = "gloo:all_reduce",
    samples: Sequence[int] = (),
    **header: Sequence[int],
) -> list[Finding]:
    """Each rank's number of calls, one at the end of each step, and of buckets; rank 1's last bucket fails. `samples`:
    of each rank's loader."""
    for rank, (amount, reduced) in enumerate(zip(calls, buckets, strict=True)):
        writer = RankWriter(rank, len(calls), **{key: value[rank] for key, value in header.items()})
        if samples:
            writer.sidecar["training"] = {"loaders": [LOADER | {"length": samples[rank]}]}
        for number in range(max(amount, reduced)):
            begin = 10**9 + 10 * number * MS
            if number < reduced:
                fails = rank == 1 and number == reduced - 1
                writer.bucket(number, begin, begin + MS, begin + 2 * MS, flags=int(fails))
            if number < amount:
                state = {} if number < amount - 1 else {"state": IN_FLIGHT}
                ended = 0 if state else begin + 4 * MS
                writer.collective(name, begin + 3 * MS, ended, sequence=number, step=number, **state)
        writer.write(folder)
    found = load_report(folder).verdict.findings
    return [finding for finding in found if finding.kind == "mismatched_all_reduce"]


OPEN = (0, 0, 0)


def test_a_rank_that_made_a_call_of_its_own_is_named_with_it_and_first(tmp_path: Path) -> None:
    """It waits there, while the others are ahead with a bucket."""
    (found,) = unequal(tmp_path, (5, 4), (4, 5))
    assert (found.rank, found.since_step, found.confidence) == (0, 4, "certain")
    assert (
        "rank 0 called gloo:all_reduce 1 time more than rank 1, first in step 4 (5 calls against 4)"
        in found.message
    )
    assert "ddp.module" in found.advice
    assert "after fewer all-reduces of gradients" in found.message and "`continue`" in found.advice
    assert load_report(tmp_path).verdict.findings[0] == found


def test_a_rank_that_came_there_without_more_batches_is_told_to_have_as_many(tmp_path: Path) -> None:
    (found,) = unequal(tmp_path, (5, 4), (4, 5), samples=(32, 80))
    assert (
        found.rank == 0
        and "because it had no more batches: an epoch has 4 batches (32 samples) on rank 0" in (found.message)
    )
    assert "with Join([ddp]):" in found.advice


def test_of_two_ranks_the_one_that_left_out_its_usual_call_went_astray(tmp_path: Path) -> None:
    """Gloo hits the innocent one, which receives a bucket instead, and its end is no cause."""
    writers = [RankWriter(rank, 2, closed=0) for rank in range(2)]
    for step in range(6):
        begin = 10**9 + 10 * step * MS
        for writer in writers:
            writer.bucket(step, begin, begin + MS, begin + 2 * MS)
            if (writer.rank, step) == (1, 5):
                continue
            waits = {"state": IN_FLIGHT} if step == 5 else {}
            ended = 0 if waits else begin + 4 * MS
            writer.collective("gloo:all_reduce", begin + 3 * MS, ended, sequence=step, step=step, **waits)
    writers[1].bucket(6, 10**9 + 60 * MS, 10**9 + 61 * MS, 10**9 + 62 * MS, flags=1)
    text = "op.preamble.length <= op.nbytes. 4000000 vs 4. Received data size doesn't match expected size."
    writers[0].sidecar["end"] = {"signal": "SIGABRT", "message": text, "at_ns": 10**9 + 62 * MS}
    reset = {"error": "RuntimeError", "message": "Connection reset by peer", "where": "train.py:31"}
    writers[1].sidecar["end"] = {**reset, "at_ns": 10**9 + 63 * MS}
    verdict = report_of(writers, tmp_path).verdict
    first = verdict.findings[0]
    assert (first.kind, first.rank, first.since_step) == ("mismatched_all_reduce", 1, 5)
    assert first.confidence == "certain"
    assert verdict.line == (
        "Rank 1 called gloo:all_reduce 1 time less than rank 0, first in step 5 (5 calls against 6). Gloo then aborted "
        "rank 0, which received what belongs to another call; by then rank 1 was at train.py:31."
    )
    assert first.where == "train.py:31"
    assert {one.kind for one in verdict.findings[1:]} >= {"rank_lost", "operation_failed"}


def test_a_rank_that_left_a_call_out_is_named(tmp_path: Path) -> None:
    (found,) = unequal(tmp_path, (5, 4, 5), (4, 5, 4), closed=OPEN)
    assert (found.rank, found.evidence["most"], found.evidence["fewest"]) == (1, 5, 4)
    assert "rank 1 called gloo:all_reduce 1 time less than ranks 0, 2" in found.message


def test_what_a_rank_called_after_the_others_had_come_to_their_end_is_too_much(tmp_path: Path) -> None:
    """As where a module broadcasts its buffers when one rank alone evaluates."""
    (found,) = unequal(tmp_path, (7, 5), (5, 5), "gloo:broadcast", closed=(0, 1))
    assert (found.rank, found.confidence, found.evidence["operation"]) == (0, "high", "gloo:broadcast")


@pytest.mark.parametrize(
    ("calls", "buckets", "name"),
    [((5, 4), (5, 5), "gloo:all_reduce"), ((5, 4), (5, 4), "gloo:all_reduce"), ((5, 4), (4, 5), "gloo:send")],
    ids=["not yet called", "behind in all", "between two ranks"],
)
def test_a_rank_that_may_just_be_behind_has_left_nothing_out(
    calls: tuple[int, int], buckets: tuple[int, int], name: str, tmp_path: Path
) -> None:
    assert unequal(tmp_path, calls, buckets, name, closed=OPEN) == []


@pytest.mark.parametrize("extra", [False, True], ids=["left out", "one too many"])
def test_where_it_stands_among_the_passes_says_which_of_two_ranks_went_astray(
    extra: bool, tmp_path: Path
) -> None:
    """A call at the begin of each step: one rank leaves it out, or makes one more at the end of its step."""
    writers = [RankWriter(rank, 2, closed=0) for rank in range(2)]
    last = 6
    for step in range(last + 1):
        begin = 10**9 + 10 * step * MS
        for writer in writers:
            trains = (writer.rank, step) != (0, last)
            calls = trains if extra else (writer.rank, step) != (1, last)
            if calls:
                stuck = not extra and step == last
                state = {"state": IN_FLIGHT} if stuck else {}
                ended = 0 if stuck else begin + 2 * MS
                writer.collective("gloo:all_reduce", begin + MS, ended, sequence=step, step=step, **state)
            if trains:
                fails = int((writer.rank, step) == (1, last))
                writer.backward(step, begin + 3 * MS, begin + 4 * MS, begin + 6 * MS)
                writer.bucket(step, begin + 4 * MS, begin + 5 * MS, begin + 6 * MS, step=step, flags=fails)
    if extra:
        at = 10**9 + (10 * last - 2) * MS
        for number in (last, last + 1):
            writers[0].collective("gloo:all_reduce", at, 0, sequence=number, step=last - 1, state=IN_FLIGHT)
    (found,) = [
        each for each in report_of(writers, tmp_path).verdict.findings if each.kind == "mismatched_all_reduce"
    ]
    assert (found.rank, found.since_step) == ((0, last - 1) if extra else (1, last)), found.message
    assert ("less than rank 0" in found.message) is not extra
