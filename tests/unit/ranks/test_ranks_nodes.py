"""What one machine launches of a world."""

from __future__ import annotations

import pytest

from pyddpdiag.errors import UsageError
from pyddpdiag.ranks.launch import Node
from pyddpdiag.ranks.rendezvous import FileTarget, Place, TcpTarget

HERE = FileTarget("store")
THERE = TcpTarget("first", 29500)


def test_all_ranks_of_a_machine_that_is_alone_meet_where_it_says() -> None:
    node = Node(3)
    assert node.alone and node.world_size == 3 and list(node.ranks) == [0, 1, 2]
    assert node.places(HERE) == [Place(rank, 3, 3, HERE) for rank in range(3)]


def test_a_machine_among_others_has_its_part_of_the_ranks_and_meets_where_they_do() -> None:
    node = Node(2, Place(1, 3, 3, THERE))
    assert not node.alone and node.world_size == 6
    assert node.places(HERE) == [Place(2, 6, 2, THERE), Place(3, 6, 2, THERE)]


def test_one_machine_that_was_given_a_place_is_alone_and_meets_there() -> None:
    node = Node(2, Place(0, 1, 1, THERE))
    assert node.alone
    assert [place.target for place in node.places(HERE)] == [THERE, THERE]


@pytest.mark.parametrize("nproc", [0, -2])
def test_no_rank_is_no_node(nproc: int) -> None:
    with pytest.raises(UsageError, match=f"--nproc is {nproc}"):
        Node(nproc)
