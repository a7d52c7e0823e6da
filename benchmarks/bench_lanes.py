"""Buckets over two interfaces at once, against each alone and both in turn; several connections over one link.

Run: python3 dev.py bench benchmarks/bench_lanes.py
Takes root on Linux: hosts are made as network namespaces with two shaped links between them; elsewhere skipped with the
reason. All ways take turns in the same processes. A round of a small bucket sums it many times in a row.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.row import Row, ratios
from support.links import NAMES, lose, on_hosts, switched_hosts, two_hosts, why_no_loss, why_not
from support.promised import need

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
    "one": {"interfaces": FIRST},
    "two": {"interfaces": FIRST, "lanes": [FIRST] * 2},
    "four": {"interfaces": FIRST, "lanes": [FIRST] * 4},
    "two-by-given-rates": {"interfaces": FIRST, "lanes": [f"{FIRST}=150"] * 2},
    "four-by-given-rates": {"interfaces": FIRST, "lanes": [f"{FIRST}=75"] * 4},
}
LOST = 0.002
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


@pytest.mark.parametrize("way", CONNECTIONS)
@pytest.mark.parametrize("size", ["64KiB", "16MiB"])
@pytest.mark.parametrize("lost", [0.0, LOST], ids=["sound", "lossy"])
def test_connections_over_one_link(row: Row, lost: float, size: str, way: str, tmp_path: Path) -> None:
    if lost:
        need("packet-loss", why_no_loss())
    rounds = row.rounds(MANY_ROUNDS)

    def of(ways: Sequence[str]) -> dict[str, list[float]]:
        with two_hosts((300, 300)) as hosts:
            for host in hosts if lost else ():
                lose(host, lost)
            return measure(hosts, {each: CONNECTIONS[each] for each in ways}, SIZES[size], rounds, tmp_path)

    bases = ["one"] if way != "one" else []
    times = row.once("way", of, needs=lambda _: bases)
    row.report(
        f"{size} over 300 Mbit per s of which {lost:.1%} is lost",
        times[way],
        ratio_to=ratios(times, way, bases),
    )
    if row.judges(MANY_ROUNDS) and way in {"two", "four"}:
        assert ratios(times, way, bases)["one"].low < NEVER_SLOWER
