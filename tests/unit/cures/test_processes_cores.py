"""Shares of a host's cores."""

import pytest

from pyddpdiag.cures import processes


def test_each_rank_has_its_own_share() -> None:
    shares = [processes.share_of([0, 1, 2, 3, 4], place, 2) for place in range(2)]
    assert shares == [[0, 1], [2, 3]]


def test_more_ranks_than_cores_have_none() -> None:
    assert processes.share_of([0, 1], 2, 3) == []


def test_threads_of_one_core_are_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    # Cores 0 and 2, 1 and 3 are one each, as Linux numbers them.
    monkeypatch.setattr(processes, "_fact", lambda core, what: core % 2 if what == "core_id" else 0)
    assert processes.in_order([0, 1, 2, 3]) == [0, 2, 1, 3]
