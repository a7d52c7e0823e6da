"""Who wins a race of interfaces, and what is said of it."""

import pytest
from sample_entries import reduce

from pyddpdiag import system
from pyddpdiag.bench.race import at_a_look, judge, settled


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


def test_windows_has_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WINDOWS", True)
    line, _ = judge([reduce("Ethernet 2", 0.01, 1)]).exports
    assert line in ("$env:GLOO_SOCKET_IFNAME = 'Ethernet 2'", 'set "GLOO_SOCKET_IFNAME=Ethernet 2"')


def test_one_interface_is_no_race() -> None:
    assert "nothing to choose" in judge([reduce("lo", 0.01)]).lines[0]


def test_where_several_win_the_single_ones_are_compared_as_well() -> None:
    both = reduce("eth0,eth1", 0.01, 3)
    race = judge([reduce("eth0", 0.024, 1), reduce("eth1", 0.02, 2), both])
    assert race.winner == "eth0,eth1"
    assert [(place.interface, place.word) for place in race.alone] == [
        ("eth1", "no difference"),
        ("eth0", "slower"),
    ]
    assert race.lines[-1].startswith("Alone, eth1 is faster: eth0 takes 1.2")
    alike = judge([reduce("eth0", 0.02, 1), reduce("eth1", 0.02, 2), both])
    assert alike.lines[-1] in (
        "Alone, eth0 and eth1 make no difference.",
        "Alone, eth1 and eth0 make no difference.",
    )
    assert judge([reduce("eth0", 0.01, 1), reduce("eth1", 0.02, 2), reduce("eth0,eth1", 0.02, 3)]).alone == ()


def test_a_repeated_name_that_hurts_is_no_second_interface() -> None:
    lines = judge([reduce("eth0", 0.01, 1), reduce("eth0,eth0", 0.02, 2)]).lines
    assert any(line.startswith("Repeating a name hurts here: eth0,eth0") for line in lines)
    assert not any(line.startswith("Several interfaces at once hurt") for line in lines)


def test_what_scatters_too_much_is_not_called_no_difference() -> None:
    race = judge([reduce("eth0", 0.01, 1, spread=0.45), reduce("eth1", 0.0105, 2, spread=0.45)])
    assert [place.word for place in race.places] == [
        "no difference",
        "cannot tell",
    ]  # the first is the winner itself
    assert not race.clear
    assert any("scatter too much to tell" in line for line in race.lines)


def test_a_race_goes_on_while_it_is_not_settled() -> None:
    def rounds(median_s: float, seed: int, spread: float = 0.05) -> tuple[float, ...]:
        return reduce("", median_s, seed, spread=spread).round_s

    assert settled({(0,): rounds(1.0, 1), (1,): rounds(1.0, 2), (0, 1): rounds(0.5, 3)})
    assert settled({(0,): rounds(1.2, 1), (1,): rounds(1.0, 2)})
    assert not settled({(0,): rounds(1.0, 1, 0.45), (1,): rounds(1.05, 2, 0.45)})
    # All are slower than both at once, but not distinguishable from each other.
    assert not settled({(0,): rounds(1.0, 1, 0.45), (1,): rounds(1.05, 2, 0.45), (0, 1): rounds(0.1, 3)})
    assert [count for count in range(200) if at_a_look(count, 120)] == [30, 60]
    assert [count for count in range(20) if at_a_look(count, 10)] == [3, 5]
