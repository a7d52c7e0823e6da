"""Gloo's own sockets are found in each rank, and what they carry is counted."""

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.promised import need
from support.ranks import run_ranks

from pyddpdiag.sockets import TcpSocket, tcp_sockets

NUMBERS = 1_000_000
ROUNDS = 5


def connections() -> dict[tuple[Any, Any], TcpSocket]:
    return {(s.local, s.peer): s for s in tcp_sockets() if s.peer is not None}


def _job(rank: int, _: int) -> dict[str, Any]:
    dist.barrier()
    before = connections()
    for _round in range(ROUNDS):
        dist.all_reduce(torch.ones(NUMBERS))
    dist.barrier()
    return {"before": before, "after": connections()}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(_job, 2, tmp_path_factory.mktemp("sockets"))


def test_the_ends_of_gloos_connections_name_each_other(ranks: list[dict[str, Any]]) -> None:
    ends = [set(rank["after"]) for rank in ranks]
    assert ends[0]
    # The ranks met over a file: what connects them is Gloo's.
    assert ends[0] == {(peer, local) for local, peer in ends[1]}
    assert all(not s.listening for rank in ranks for s in rank["after"].values())


def test_what_gloo_sent_is_in_the_readings(ranks: list[dict[str, Any]]) -> None:
    sources = {s.source for rank in ranks for s in rank["after"].values()}
    assert len(sources) == 1
    if sources == {""}:
        need("tcp-info", "this system tells nothing of a connection")
    for rank, other in (ranks, ranks[::-1]):
        sent = sum(
            s.info["bytes_sent"] - rank["before"][ends].info["bytes_sent"]
            for ends, s in rank["after"].items()
        )
        received = sum(
            s.info["bytes_received"] - other["before"][ends].info["bytes_received"]
            for ends, s in other["after"].items()
        )
        # Two ranks: each sends half of the sum and half of the result, once per round, and little else.
        payload = ROUNDS * NUMBERS * 4
        assert payload <= sent < 1.2 * payload
        assert payload <= received < 1.2 * payload


def test_a_connection_is_reported_with_units_and_without_empty_readings(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for each in rank["after"].values():
            assert all(isinstance(value, int) and value >= 0 for value in each.info.values())
            if each.source:
                assert 0 < each.info["rtt_us"] < 10_000_000
                assert each.info["cwnd_bytes"] >= each.info["mss_bytes"] > 0


def test_a_python_socket_is_found_while_it_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = server.getsockname()
        [found] = [s for s in tcp_sockets() if s.handle == server.fileno()]
        assert found.local == name and found.peer is None and found.listening
        assert found.source == "" and found.info == {}
        with socket.create_connection(name) as client:
            [found] = [s for s in tcp_sockets() if s.handle == client.fileno()]
            assert (found.local, found.peer) == (client.getsockname(), name)
    assert all(s.local != name for s in tcp_sockets() if s.listening)


def test_ipv4_in_an_ipv6_socket_is_named_as_ipv4() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no dual-stack IPv6 here")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            with accepted:
                [found] = [s for s in tcp_sockets() if s.handle == accepted.fileno()]
                assert found.local == ("127.0.0.1", port)
                assert found.peer == client.getsockname()


def test_unix_and_datagram_sockets_are_left_out(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.bind(("127.0.0.1", 0))
        assert datagram.fileno() not in {s.handle for s in tcp_sockets()}
    pair = socket.socketpair()
    found = {s.handle for s in tcp_sockets()}
    # Windows makes a pair of TCP connections for it.
    if pair[0].family not in (socket.AF_INET, socket.AF_INET6):
        assert not found & {s.fileno() for s in pair}
    for each in pair:
        each.close()
