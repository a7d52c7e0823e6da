"""Links of different rates: the race of interfaces, what 16-bit gradients gain on them, and two runs compared.

Run: python3 dev.py bench benchmarks/bench_interfaces.py
Takes root on Linux: two hosts are made as network namespaces, with a link like 150 Mbit/s and one like 1 Gbit/s
between them; elsewhere skipped with the reason. `extra_info` is that of a result file (docs/benchmarks.md); what
pytest-benchmark itself times is nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.hosts import sweep_over
from support.links import NAMES, why_not
from support.promised import need

from pyddpdiag.bench.cases import Case, allreduce_cases, race_cases, step_cases
from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.intervals import ratio_in_pairs
from pyddpdiag.bench.race import judge
from pyddpdiag.bench.results import Entry, ResultFile, stamped

MBIT = (150, 1000)
ROUNDS, SITTINGS = 4, 2
HOOKS = ["plain", "torch_bf16", "timed_bf16", "native_bf16"]
OURS = ("timed_bf16", "native_bf16")
RACE = race_cases(NAMES, 2, 2**21, repeat=2)
REDUCES = allreduce_cases([2**18, 2**19, 2**20], [2], [(0,)])
STEPS = step_cases(["digits", "mlp"], HOOKS, [None], [2], [(0,), (1,)])


@pytest.fixture(scope="module", autouse=True)
def links() -> None:
    need("namespaces", why_not())


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory, links: None) -> list[Entry]:
    return sweep_over(MBIT, RACE, tmp_path_factory.mktemp("race"), rounds=15)


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory, links: None) -> list[Entry]:
    folder = tmp_path_factory.mktemp("steps")
    return sweep_over(MBIT, STEPS, folder, rounds=ROUNDS, sittings=SITTINGS)


def names_of(case: Case) -> str:
    return ",".join(NAMES[place] for place in case.picks)


def find(entries: list[Entry], case: Case) -> Entry:
    [entry] = [entry for entry in entries if entry.name == case.label(names_of(case))]
    return entry


@pytest.mark.parametrize("case", RACE, ids=names_of)
def test_race(benchmark: Any, raced: list[Entry], case: Case) -> None:
    entry = find(raced, case)
    benchmark.pedantic(lambda: None, rounds=1)
    race = judge(raced)
    told = stamped(entry.extra_info, entry.round_s)
    benchmark.extra_info.update({**told, "link_mbit": list(MBIT), "race": race.as_dict()})
    # Repeated or not, alone or beside the other: the faster link takes part.
    assert NAMES[1] in race.winner.split(","), race.lines
    assert any(p.interface == NAMES[0] and p.word == "slower" for p in race.places), race.lines


@pytest.mark.parametrize("case", STEPS, ids=lambda case: case.label(names_of(case)))
def test_step(benchmark: Any, stepped: list[Entry], case: Case) -> None:
    entry = find(stepped, case)
    plain = find(stepped, Case("step", 2, case.picks, model=case.model, hook="plain"))
    benchmark.pedantic(lambda: None, rounds=1)
    told = stamped(entry.extra_info, entry.round_s)
    over_plain = ratio_in_pairs(entry.round_s, plain.round_s)
    benchmark.extra_info.update({**told, "link_mbit": list(MBIT), "over_plain": over_plain.as_dict()})
    print(f"\n{entry.name}: {told['median_s']}, / plain {over_plain}", end="")
    assert len(entry.round_s) == ROUNDS * SITTINGS
    if case.hook in OURS:
        torchs = find(stepped, Case("step", 2, case.picks, model=case.model, hook="torch_bf16"))
        # Where the link is the price, an exchange that leaves half of it idle stands out.
        assert ratio_in_pairs(entry.round_s, torchs.round_s).low < 1.1


@pytest.mark.parametrize(("second_mbit", "word"), [(180, "faster"), (150, "no difference")])
def test_two_runs_are_told_apart_where_the_link_is_faster_by_a_fifth(
    benchmark: Any, second_mbit: int, word: str, tmp_path: Path
) -> None:
    """Two result files, made one after the other, of which nothing is paired."""

    def run(mbit: int, name: str) -> ResultFile:
        folder = tmp_path / name
        folder.mkdir()
        entries = sweep_over((mbit, mbit), REDUCES, folder, rounds=20, sittings=4)
        return ResultFile(f"{name}.json", {}, tuple(entries))

    first = run(150, "first")
    second = benchmark.pedantic(run, (second_mbit, "second"), rounds=1)
    pairs = compare([first, second], with_article=False).pairs
    told = {pair.case: {"word": pair.word, **pair.ratio.as_dict()} for pair in pairs}
    benchmark.extra_info.update({"link_mbit": [150, second_mbit], "pairs": told})
    print(f"\n{told}", end="")
    assert len(pairs) == len(REDUCES)
    assert {pair.word for pair in pairs} == {word}, told
