"""Who wins a race of interfaces, and what is said of it."""

from __future__ import annotations

from bench_entries import reduce

from pyddpdiag.bench.race import judge


def test_the_fastest_wins_and_the_others_are_slower() -> None:
    race = judge([reduce("eth0", 0.05, 1), reduce("eth1", 0.01, 2), reduce("eth0,eth1", 0.03, 3)])
    assert race.winner == "eth1" and race.clear
    assert [place.interface for place in race.places] == ["eth1", "eth0,eth1", "eth0"]
    assert any(line.startswith("Several interfaces at once hurt") for line in race.lines)


def test_no_difference_prefers_the_simplest() -> None:
    race = judge([reduce("eth0", 0.0101, 1), reduce("eth0,eth1", 0.01, 2)])
    assert race.winner == "eth0" and not race.clear
    assert race.lines == ("No difference between eth0 and eth0,eth1.",)


def test_several_at_once_may_win() -> None:
    race = judge([reduce("eth0", 0.02, 1), reduce("eth1", 0.02, 2), reduce("eth0,eth1", 0.01, 3)])
    assert race.winner == "eth0,eth1" and race.clear


def test_each_rank_has_its_own_line() -> None:
    race = judge([reduce("eth0", 0.01, 1, ["eth0", "ens5"]), reduce("eth1", 0.05, 2, ["eth1", "ens6"])])
    assert race.exports == ("export GLOO_SOCKET_IFNAME=eth0", "export GLOO_SOCKET_IFNAME=ens5")


def test_one_interface_is_no_race() -> None:
    assert "nothing to choose" in judge([reduce("lo", 0.01)]).lines[0]
