"""Which network interfaces Gloo is given, and how many cores a rank takes."""

from __future__ import annotations

import pytest

from pyddpdiag.errors import UsageError
from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.cores import threads_per_rank, usable_cores


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
