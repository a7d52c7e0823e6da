"""Buckets over two interfaces at once, against each alone and both in turn; several connections over a lossy link.

Run: python3 dev.py bench benchmarks/bench_lanes.py
Takes root on Linux: two hosts are made as network namespaces with two shaped links between them; elsewhere skipped with
the reason. All ways take turns in the same pair of processes, bucket by bucket.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.row import Row, ratios
from support.links import NAMES, lose, on_hosts, two_hosts, why_no_loss, why_not
from support.promised import need

ROUNDS, LOSSY_ROUNDS = 10, 30
FIRST, SECOND = NAMES
BOTH = f"{FIRST},{SECOND}"
SIZES = {"64KiB": 2**16, "1MiB": 2**20, "4MiB": 2**22, "16MiB": 2**24, "64MiB": 2**26}
WAYS: dict[str, dict[str, Any]] = {
    "first": {"interfaces": FIRST},
    "second": {"interfaces": SECOND},
    "in-turn": {"interfaces": BOTH},
    "lanes": {"interfaces": FIRST, "lanes": [FIRST, SECOND]},
}
LOSSY: dict[str, dict[str, Any]] = {
    "one": {"interfaces": FIRST},
    "two": {"interfaces": FIRST, "lanes": [f"{FIRST}=150", f"{FIRST}=150"]},
    "four": {"interfaces": FIRST, "lanes": [f"{FIRST}=75"] * 4},
}
LOST = 0.002
# Of the interfaces' summed rate, from 16 MiB on.
GOAL = 0.9
# At any size, against the best interface alone.
NEVER_SLOWER = 1.02


@pytest.fixture(scope="module", autouse=True)
def links() -> None:
    need("namespaces", why_not())


def measure(
    mbit: tuple[int, int],
    ways: dict[str, dict[str, Any]],
    size: int,
    rounds: int,
    folder: Path,
    lost: float = 0.0,
) -> dict[str, list[float]]:
    """Seconds of each bucket of each way."""
    spec = folder / "spec.json"
    orders = {"ways": ways, "sizes": [size], "rounds": rounds, "folder": str(folder)}
    spec.write_text(json.dumps(orders), encoding="utf-8")
    commands = [
        [sys.executable, "-m", "support.lanes_job", str(rank), "2", "tcp://10.77.0.1:29523", str(spec)]
        for rank in range(2)
    ]
    with two_hosts(mbit) as hosts:
        for host in hosts if lost else ():
            lose(host, lost)
        ends = on_hosts(hosts, commands, folder, 900)
    assert [code for code, _, _ in ends] == [0, 0], ends
    return {way: times[str(size)] for way, times in json.loads(ends[0][1]).items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mbit", [(100, 300), (200, 200)], ids=lambda mbit: f"{mbit[0]}+{mbit[1]}Mbit")
def test_two_interfaces(row: Row, mbit: tuple[int, int], size: str, way: str, tmp_path: Path) -> None:
    rounds = row.rounds(ROUNDS)

    def of(ways: Sequence[str]) -> dict[str, list[float]]:
        return measure(mbit, {each: WAYS[each] for each in ways}, SIZES[size], rounds, tmp_path)

    bases = [each for each in WAYS if each != way] if way == "lanes" else []
    times = row.once("way", of, needs=lambda _: bases)
    ideal = SIZES[size] * 8 / (sum(mbit) * 1e6)
    found = ratios(times, way, bases)
    row.report(
        f"a bucket of {size} over {mbit[0]} and {mbit[1]} Mbit per s",
        times[way],
        ratio_to=found,
        link_mbit=list(mbit),
        of_summed_rate=ideal / sorted(times[way])[len(times[way]) // 2],
    )
    if row.judges(ROUNDS) and way == "lanes":
        best = "first" if mbit[0] > mbit[1] else "second"
        assert found[best].low < NEVER_SLOWER
        if SIZES[size] >= 2**24:
            assert ideal / min(times[way]) > GOAL


@pytest.mark.parametrize("way", LOSSY)
def test_connections_over_a_lossy_link(row: Row, way: str, tmp_path: Path) -> None:
    need("packet-loss", why_no_loss())
    rounds = row.rounds(LOSSY_ROUNDS)

    def of(ways: Sequence[str]) -> dict[str, list[float]]:
        return measure((300, 300), {each: LOSSY[each] for each in ways}, 2**24, rounds, tmp_path, LOST)

    bases = ["one"] if way != "one" else []
    times = row.once("way", of, needs=lambda _: bases)
    row.report(
        f"16 MiB over 300 Mbit per s of which {LOST:.1%} is lost",
        times[way],
        ratio_to=ratios(times, way, bases),
    )
    if row.judges(LOSSY_ROUNDS) and way == "two":
        assert ratios(times, way, bases)["one"].low < 1.0
