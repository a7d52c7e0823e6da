"""What one machine launches of a world: its ranks, the interfaces Gloo is given, the cores a rank takes."""

from __future__ import annotations

import pytest

from pyddpdiag.errors import UsageError
from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.cores import threads_per_rank, usable_cores
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


def test_interface_by_option_variable_or_loopback() -> None:
    loop = interfaces.loopback()
    assert loop is not None
    assert interfaces.choose((loop,), local=False, environ={}) == (loop, "")
    assert interfaces.choose((loop, loop), local=True, environ={}) == (f"{loop},{loop}", "")
    assert interfaces.choose((), local=True, environ={"GLOO_SOCKET_IFNAME": loop}) == (loop, "")
    assert interfaces.choose((), local=False, environ={}) == ("", "")
    value, note = interfaces.choose((), local=True, environ={})
    assert value == loop and loop in note


@pytest.mark.parametrize("names", [("no-such-card",), ("no-such-card", "neither")])
def test_unknown_interfaces_are_refused_with_those_that_exist(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="no-such-card") as caught:
        interfaces.choose(names, local=True, environ={})
    assert interfaces.loopback() in caught.value.hint
    with pytest.raises(UsageError, match="from GLOO_SOCKET_IFNAME"):
        interfaces.choose((), local=True, environ={"GLOO_SOCKET_IFNAME": ",".join(names)})


def test_interface_names_are_parsed() -> None:
    assert interfaces.parse("eth0, eth1") == ("eth0", "eth1")
    for text in ("", "eth0,", ","):
        with pytest.raises(UsageError):
            interfaces.parse(text)


def test_threads_are_shared() -> None:
    assert threads_per_rank(1, {}) == usable_cores()
    assert threads_per_rank(10_000, {}) == 1
    assert threads_per_rank(2, {"OMP_NUM_THREADS": "7"}) == 7
    assert threads_per_rank(10_000, {"OMP_NUM_THREADS": "many"}) == 1
