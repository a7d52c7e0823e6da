"""Every order of the steps of ranks that average in shared memory, in a model of them (support.shared_model)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.shared_model import OLD, SPOILT, WRONG_SUM, Exchange, Protocol

NEW = Protocol()


@pytest.mark.parametrize(
    ("ranks", "operations", "units", "hands_out"),
    [
        *[(2, 1, 3, False), (2, 3, 1, False), (3, 1, 2, False), (3, 2, 1, False), (2, 2, 2, True)],
        (3, 1, 1, True),
    ],
)
def test_a_rank_gets_what_all_brought_or_an_error(
    ranks: int, operations: int, units: int, hands_out: bool
) -> None:
    found = Exchange(replace(NEW, hands_out=hands_out), ranks, operations, units).search()
    assert found.faults == frozenset()
    assert found.ends


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_lets_go_at_once_makes_wrong_sums(ranks: int) -> None:
    """As it was: one gives up and overwrites its bucket, a late one finds that all have announced."""
    assert Exchange(OLD, ranks, operations=1).search().faults == {WRONG_SUM, SPOILT}


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({"looks_before": False}, {SPOILT}),
        ({"looks_before": False, "looks_after": False}, {SPOILT, WRONG_SUM}),
        ({"says_first": False}, {SPOILT}),
        ({"says_first": False, "looks_after": False}, {SPOILT, WRONG_SUM}),
        ({"waits": False}, {SPOILT}),
        ({"waits": False, "looks_after": False}, {SPOILT, WRONG_SUM}),
        ({"moves": False}, {SPOILT}),
        ({"moves": False, "looks_after": False}, {SPOILT, WRONG_SUM}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_no_part_of_the_protocol_can_be_left_out(change: dict[str, bool], faults: set[str]) -> None:
    assert Exchange(replace(NEW, **change), ranks=2).search().faults == faults
