"""Which ranks are a host."""

from __future__ import annotations

import pytest

from pyddpdiag.paths.shared_setup import Readers, agree


def _seen(*ranks: list[int]) -> list[Readers]:
    """What each rank found: who has read its secret."""
    size = len(ranks)
    return [
        {"ranks": able, "refusal": "" if len(able) == size else f"not all read {i}"}
        for i, able in enumerate(ranks)
    ]


@pytest.mark.parametrize(
    ("seen", "hosts"),
    [
        (_seen([0, 1], [0, 1]), [[0, 1]]),
        (_seen([0, 1], [0, 1], [2, 3], [2, 3]), [[0, 1], [2, 3]]),
        (_seen([0, 3], [1, 2], [1, 2], [0, 3]), [[0, 3], [1, 2]]),
    ],
)
def test_hosts_of_as_many_ranks_each(seen: list[Readers], hosts: list[list[int]]) -> None:
    assert agree(seen) == (hosts, "")


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (_seen([0], [1]), "not all read 0"),
        (_seen([0, 1], [1]), "not all read 1"),  # one way only
        (_seen([0, 1], [0, 1], [2]), "not all read 0 (hosts of 2, 1 ranks; the numbers must be equal)"),
        (_seen([0, 1], [0, 1, 2], [1, 2]), "not all read 0"),  # not all of what would be a host
        (
            _seen([0, 1, 2], [0, 1, 2], [0, 1, 2], [3]),
            "not all read 0 (hosts of 3, 1 ranks; the numbers must be equal)",
        ),
    ],
)
def test_otherwise_there_are_none(seen: list[Readers], reason: str) -> None:
    assert agree(seen) == ([], reason)
