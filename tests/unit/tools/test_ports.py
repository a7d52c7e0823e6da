"""Ports of tests that run at once."""

import pytest
from support.ports import own_port, ports_of


def test_each_worker_has_ports_of_its_own(request: pytest.FixtureRequest) -> None:
    name = getattr(request.config, "workerinput", {"workerid": "gw0"})["workerid"]
    mine = int(name.removeprefix("gw"))
    given = [own_port() for _ in range(3)]
    assert len(set(given)) == 3 and all(port in ports_of(mine) for port in given)
    assert not set(ports_of(mine)) & set(ports_of(mine + 1))


def test_who_has_no_pytest_around_it_gets_a_port_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the benchmarks, which have a conftest of their own."""
    monkeypatch.delenv("PYDDPDIAG_TEST_WORKER")
    assert own_port() in ports_of(0)
