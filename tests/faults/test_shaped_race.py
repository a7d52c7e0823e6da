"""The race of interfaces between two hosts over links of chosen rates: the truly faster one wins, or none does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.links import NAMES, on_hosts, two_hosts

FIRST, SECOND = NAMES
BOTH = ",".join(NAMES)
TIMEOUT_S = 100

pytestmark = pytest.mark.usefixtures("links")


def race(
    mbit: tuple[int, int], folder: Path, *options: object, names: str = BOTH, rounds: int = 48
) -> dict[str, Any]:
    """What rank 0 tells of a race over links of these rates."""
    commands = []
    for rank in range(2):
        command = [sys.executable, "-m", "pyddpdiag", "bench", "interfaces", "--interface", names]
        command += ["--dist-url", "tcp://10.77.0.1:29517", "--world-size", "2", "--rank", str(rank)]
        command += [
            *("--rounds", str(rounds), "--json", "--output", str(folder / "race.json")),
            *map(str, options),
        ]
        commands.append(command)
    with two_hosts(mbit) as hosts:
        ends = on_hosts(hosts, commands, folder, TIMEOUT_S)
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    assert ends[1][1] == ""  # rank 1 prints nothing
    assert (folder / "race.json").exists()
    found: dict[str, Any] = json.loads(ends[0][1])
    assert found["exports"] == [f"export GLOO_SOCKET_IFNAME={found['winner']}"] * 2
    return found


def words(places: list[dict[str, Any]]) -> dict[str, str]:
    return {place["interface"]: place["word"] for place in places}


# Slow enough for a busy machine, which knows a median of 48 rounds to a fifth; at 1000 Mbit/s processors have a say.
def test_a_link_that_is_faster_by_a_half_is_found(tmp_path: Path) -> None:
    found = race((180, 120), tmp_path, "--size", "1M")
    # The two together carry twice as much, so they win; among the single ones the faster does.
    assert found["winner"] == BOTH and found["clear"], found
    assert words(found["places"]) == {BOTH: "no difference", FIRST: "slower", SECOND: "slower"}, found
    first, second = found["alone"]
    assert (first["interface"], second["interface"], second["word"]) == (FIRST, SECOND, "slower"), found
    assert any(line.startswith(f"Alone, {FIRST} is faster: {SECOND} takes") for line in found["lines"])


def test_links_of_one_rate_make_no_difference(tmp_path: Path) -> None:
    found = race((150, 150), tmp_path, "--size", "1M", rounds=80)
    assert found["winner"] == BOTH, found
    verdicts = set(words(found["alone"]).values())
    # On a machine that is busy with other things it may be that nobody can tell; but never that one is faster.
    assert verdicts <= {"no difference", "cannot tell"}, found
    settled = any(line.startswith("Alone, ") and "make no difference" in line for line in found["lines"])
    assert settled == (verdicts == {"no difference"}), found


def test_several_at_once_hurt_where_one_is_slow(tmp_path: Path) -> None:
    found = race((20, 150), tmp_path, "--size", "512K")
    assert found["winner"] == SECOND and found["clear"], found
    assert words(found["places"]) == {SECOND: "no difference", FIRST: "slower", BOTH: "slower"}, found
    assert any(line.startswith(f"Several interfaces at once hurt here: {BOTH}") for line in found["lines"])


def test_a_repeated_name_makes_no_second_link(tmp_path: Path) -> None:
    """As --repeat asks for it, too: test_bench_options.py."""
    found = race((150, 150), tmp_path, "--size", "1M", names=f"{FIRST},{FIRST}")
    # Of what makes no difference the simplest is recommended.
    assert found["winner"] == FIRST and not found["clear"], found
    assert set(words(found["places"]).values()) <= {"no difference", "cannot tell"}, found
