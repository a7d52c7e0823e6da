"""The race of interfaces between ranks that are started one by one: real links of different rates, wrong lists."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.links import NAMES, two_hosts, why_not
from train_support import environment, started

from pyddpdiag.train.interfaces import available

REFUSED = why_not()
needs_links = pytest.mark.skipif(bool(REFUSED), reason=f"no shaped links: {REFUSED}")
TIMEOUT_S = 110


def race(
    url: str, lists: tuple[str, str], folder: Path, *options: object, hosts: tuple[str, ...] = ()
) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of two ranks with these interfaces, each on its host."""
    with ExitStack() as stack:
        processes: list[subprocess.Popen[str]] = []
        for rank, names in enumerate(lists):
            command = [sys.executable, "-m", "pyddpdiag", "bench", "interfaces", "--dist-url", url]
            command += ["--world-size", "2", "--rank", str(rank), "--interface", names, *map(str, options)]
            where = ["ip", "netns", "exec", hosts[rank]] if hosts else []
            processes.append(stack.enter_context(started([*where, *command], folder, **environment())))
        ends = [process.communicate(timeout=TIMEOUT_S) for process in processes]
        return [(p.returncode, out, err) for p, (out, err) in zip(processes, ends, strict=True)]


def outcome(mbit: tuple[int, int], folder: Path) -> dict[str, Any]:
    with two_hosts(mbit) as hosts:
        lists = (",".join(NAMES), ",".join(NAMES))
        options = ("--size", "1M", "--rounds", 16, "--json", "--output", folder / "race.json")
        ends = race("tcp://10.77.0.1:29517", lists, folder, *options, hosts=hosts)
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert ends[1][1] == ""  # rank 1 prints nothing
    found: dict[str, Any] = json.loads(ends[0][1])
    return found


@needs_links
def test_the_faster_link_wins(tmp_path: Path) -> None:
    found = outcome((150, 1000), tmp_path)
    assert found["winner"].split(",")[-1] == NAMES[1], found
    words = {place["interface"]: place["word"] for place in found["places"]}
    assert words[NAMES[0]] == "slower", found
    assert found["exports"] == [f"export GLOO_SOCKET_IFNAME={found['winner']}"] * 2
    assert (tmp_path / "race.json").exists()


@needs_links
def test_links_of_one_rate_make_no_difference(tmp_path: Path) -> None:
    found = outcome((150, 150), tmp_path)
    words = {place["interface"]: place["word"] for place in found["places"]}
    # Both at once may well be faster; one against the other is not.
    first, second = (next(p for p in found["places"] if p["interface"] == name) for name in NAMES)
    ratio = first["median_ms"] / second["median_ms"]
    assert 0.8 < ratio < 1.25, found
    assert words[NAMES[0]] == words[NAMES[1]], found


def test_a_wrong_name_on_one_rank_ends_both(tmp_path: Path) -> None:
    lists = (sorted(available())[0], "nic-of-nobody")
    ends = race((tmp_path / "meet").as_uri(), lists, tmp_path, "--rounds", 1)
    assert [code for code, _, _ in ends] == [2, 2], ends
    assert all("'nic-of-nobody'" in err and "does not exist" in err for _, _, err in ends), ends


def test_lists_of_different_length_end_both(tmp_path: Path) -> None:
    names = sorted(available())
    if len(names) < 2:
        pytest.skip(f"this machine has one interface with an address: {names}")
    ends = race((tmp_path / "meet").as_uri(), (names[0], ",".join(names[:2])), tmp_path, "--rounds", 1)
    assert [code for code, _, _ in ends] == [2, 2], ends
    assert all("the number of interfaces (--interface) differs" in err for _, _, err in ends), ends
