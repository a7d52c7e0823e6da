"""Collectives other than buckets into which the ranks put different things."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.trace_writer import MS, RankWriter

from pyddpdiag.model import Finding
from pyddpdiag.pipeline import load_report

FLOAT, DOUBLE = 1, 2


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


def test_the_same_calls_are_no_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, [ALIKE] * 3) == []


@pytest.mark.parametrize(("other", "field"), [((64, FLOAT), "bytes"), ((32, DOUBLE), "dtype")])
def test_the_first_call_that_differs_is_told_with_its_rank(
    tmp_path: Path, other: tuple[int, int], field: str
) -> None:
    (found,) = findings(tmp_path, [ALIKE, [*ALIKE[:4], other, *ALIKE[5:]], ALIKE])
    assert (found.rank, found.since_step, found.evidence["sequence"]) == (1, 2, 4)
    assert (found.evidence["operation"], found.evidence["calls"]) == ("gloo:broadcast", 1)
    assert f"{field} differs" in found.message
    (mismatch,) = load_report(tmp_path).mismatches
    assert (mismatch.operation, mismatch.field) == ("gloo:broadcast", field)


def test_of_two_ranks_neither_is_blamed(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, [ALIKE, [*ALIKE[:5], (64, FLOAT)]])
    assert found.rank is None


def test_neighbours_in_another_order_are_the_same_calls(tmp_path: Path) -> None:
    calls = [(32, FLOAT), (64, FLOAT), (8, DOUBLE), (16, FLOAT)]
    swapped = [calls[1], calls[0], calls[2], calls[3]]
    assert findings(tmp_path, [calls, swapped, calls]) == []


def test_operations_to_which_ranks_give_different_amounts_are_not_compared(tmp_path: Path) -> None:
    assert findings(tmp_path, [ALIKE, [(64, FLOAT)] * 6], name="gloo:scatter") == []


def test_a_rank_with_fewer_calls_is_not_compared(tmp_path: Path) -> None:
    """It may have missed any of them."""
    assert findings(tmp_path, [ALIKE, [(64, FLOAT)] * 5]) == []
