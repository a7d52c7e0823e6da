"""Buckets over two interfaces at once, against each alone and both in turn; several connections over one link.

Run: python3 dev.py bench benchmarks/bench_lanes.py
Takes root on Linux: hosts are made as network namespaces with two shaped links between them; elsewhere skipped with the
reason. All ways take turns in the same processes. A round of a small bucket sums it many times in a row.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.row import Row, ratios
from support.links import NAMES, limit, on_hosts, switched_hosts, two_hosts, why_not
from support.promised import need

RELAY = Path(__file__).parents[1] / "accuracy" / "bed" / "relay.py"
ROUNDS, MANY_ROUNDS = 10, 30
FIRST, SECOND = NAMES
BOTH = f"{FIRST},{SECOND}"
SIZES = {
    **{"4KiB": 2**12, "64KiB": 2**16, "256KiB": 2**18, "1MiB": 2**20, "4MiB": 2**22, "16MiB": 2**24},
    "64MiB": 2**26,
}
# A round of a smaller bucket sums it up to 256 times, until it has sent this much: the burst that a shaper lets through
# after a rest then counts for little.
SENT = 2**23
WAYS: dict[str, dict[str, Any]] = {
    "first": {"interfaces": FIRST},
    "second": {"interfaces": SECOND},
    "in-turn": {"interfaces": BOTH},
    "lanes": {"interfaces": FIRST, "lanes": [FIRST, SECOND]},
}
CONNECTIONS: dict[str, dict[str, Any]] = {
    str(count): {"interfaces": FIRST, "lanes": [FIRST] * count if count > 1 else []} for count in (1, 2, 4, 8)
}
# Buckets until the ranks have tried a division, and tried it again with other shares.
TRIED = 60
# Of the interfaces' summed rate, from 16 MiB on.
GOAL = 0.9
# At any size, against the best interface alone.
NEVER_SLOWER = 1.02


@pytest.fixture(scope="module", autouse=True)
def links() -> None:
    need("namespaces", why_not())


def measure(
    hosts: Sequence[str], ways: dict[str, dict[str, Any]], size: int, rounds: int, folder: Path
) -> dict[str, list[float]]:
    """Seconds of a bucket in each round of each way."""
    spec = folder / "spec.json"
    orders = {"ways": ways, "sizes": [size], "rounds": rounds, "folder": str(folder)}
    orders["bytes"], orders["first"] = min(SENT, 256 * size), TRIED
    spec.write_text(json.dumps(orders), encoding="utf-8")
    world = str(len(hosts))
    commands = [
        [sys.executable, "-m", "support.lanes_job", str(rank), world, "tcp://10.77.0.1:29523", str(spec)]
        for rank in range(len(hosts))
    ]
    ends = on_hosts(hosts, commands, folder, 900)
    assert [code for code, _, _ in ends] == [0] * len(hosts), ends
    return {way: times[str(size)] for way, times in json.loads(ends[0][1]).items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("mbit", [(100, 300), (200, 200)], ids=lambda mbit: f"{mbit[0]}+{mbit[1]}Mbit")
def test_two_interfaces(
    row: Row, mbit: tuple[int, int], ranks: int, size: str, way: str, tmp_path: Path
) -> None:
    usual = MANY_ROUNDS if SIZES[size] < SENT else ROUNDS
    rounds = row.rounds(usual)

    def of(ways: Sequence[str]) -> dict[str, list[float]]:
        with two_hosts(mbit) if ranks == 2 else switched_hosts(ranks, mbit) as hosts:
            return measure(hosts, {each: WAYS[each] for each in ways}, SIZES[size], rounds, tmp_path)

    bases = [each for each in WAYS if each != way] if way == "lanes" else []
    times = row.once("way", of, needs=lambda _: bases)
    # What each rank sends in a ring, per byte of the bucket: https://arxiv.org/abs/1802.05799, section 3
    ideal = SIZES[size] * 8 * 2 * (ranks - 1) / ranks / (sum(mbit) * 1e6)
    found = ratios(times, way, bases)
    row.report(
        f"a bucket of {size} over {mbit[0]} and {mbit[1]} Mbit per s, {ranks} ranks",
        times[way],
        ratio_to=found,
        link_mbit=list(mbit),
        ranks=ranks,
        of_summed_rate=ideal / sorted(times[way])[len(times[way]) // 2],
    )
    if row.judges(usual) and way == "lanes":
        best = "first" if mbit[0] > mbit[1] else "second"
        assert found[best].low < NEVER_SLOWER
        if SIZES[size] >= 2**24:
            assert ideal / min(times[way]) > GOAL


@contextmanager
def far_hosts(mbit: int, round_trip_ms: float, lost: float) -> Iterator[tuple[str, str]]:
    """Two hosts on a cable that delays and loses, where TCP is CUBIC: of a loss, BBR takes little notice."""
    tag = os.getpid()
    hosts = (f"far-0-{tag}", f"far-1-{tag}")
    taps = [f"far{place}{tag}" for place in (0, 1)]
    with ExitStack() as stack:
        relay = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(RELAY), *taps], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(relay.kill)
        assert relay.stdin is not None and relay.stdout is not None
        assert relay.stdout.readline() == "ready\n", "TAP devices cannot be made here"
        relay.stdin.write(f"{round_trip_ms / 2} {100 * lost}\n")
        relay.stdin.flush()
        for place, (host, tap) in enumerate(zip(hosts, taps, strict=True)):
            _do("netns", "add", host)
            stack.callback(_do, "netns", "del", host)
            _do("link", "set", tap, "netns", host, "name", FIRST)
            _do("-n", host, "link", "set", "lo", "up")
            _do("-n", host, "address", "add", f"10.77.0.{place + 1}/24", "dev", FIRST)
            # Large frames: the relay takes each of them into its hands.
            _do("-n", host, "link", "set", FIRST, "mtu", "8000", "up")
            route = ("10.77.0.0/24", "dev", FIRST, "proto", "kernel", "scope", "link")
            _do("-n", host, "route", "change", *route, "src", f"10.77.0.{place + 1}", "congctl", "cubic")
            limit(host, FIRST, mbit, 64)
        yield hosts


def _do(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.mark.parametrize("way", CONNECTIONS)
@pytest.mark.parametrize("lost", [0.0, 0.001, 0.01], ids=lambda lost: f"{lost:.1%}")
@pytest.mark.parametrize("round_trip_ms", [0, 10, 40], ids=lambda ms: f"{ms}ms")
def test_connections_over_one_link(
    row: Row, round_trip_ms: int, lost: float, way: str, tmp_path: Path
) -> None:
    rounds = row.rounds(ROUNDS)

    def of(ways: Sequence[str]) -> dict[str, list[float]]:
        with far_hosts(200, round_trip_ms, lost) as hosts:
            return measure(hosts, {each: CONNECTIONS[each] for each in ways}, SIZES["4MiB"], rounds, tmp_path)

    bases = ["1"] if way != "1" else []
    times = row.once("way", of, needs=lambda _: bases)
    found = ratios(times, way, bases)
    row.report(
        f"4 MiB over 200 Mbit per s, round trips of {round_trip_ms} ms, {lost:.1%} lost",
        times[way],
        ratio_to=found,
    )
    if row.judges(ROUNDS) and way != "1":
        assert found["1"].low < NEVER_SLOWER
