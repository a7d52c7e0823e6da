"""Links of different rates: the race of interfaces, what 16-bit gradients gain on them, and two runs compared.

Run: python3 dev.py bench benchmarks/bench_interfaces.py
Takes root on Linux: two hosts are made as network namespaces, with a link like 150 Mbit/s and one like 1 Gbit/s
between them; elsewhere skipped with the reason. The `extra_info` of races and steps is also that of a result file
(docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from harness.hosts import sweep_over
from harness.row import Row
from harness.sweeps import RUNS, Swept, TwoRuns, places, report_case
from support.links import NAMES, why_not
from support.promised import need

from pyddpdiag.bench.cases import Case, allreduce_cases, race_cases, step_cases
from pyddpdiag.bench.intervals import ratio_in_pairs
from pyddpdiag.bench.race import judge

MBIT = (150, 1000)
RACE_ROUNDS = 15
STEP_ROUNDS, STEP_LAUNCHES = 8, 2
RUN_ROUNDS, RUN_LAUNCHES = 80, 4
HOOKS = ["plain", "torch_bf16", "timed+bf16", "native+bf16"]
OURS = ("timed+bf16", "native+bf16")
RACE = race_cases(NAMES, 2, 2**21, repeat=2)
[FASTER] = [case for case in RACE if case.picks == (1,)]
REDUCES = allreduce_cases([2**18, 2**19, 2**20], [2], [(0,)])
STEPS = step_cases(["digits-cnn", "mlp"], HOOKS, [None], [2], [(0,), (1,)])


@pytest.fixture(scope="module", autouse=True)
def links() -> None:
    need("namespaces", why_not())


def names_of(case: Case) -> str:
    return ",".join(NAMES[place] for place in case.picks)


def label(case: Case) -> str:
    return case.label(names_of(case))


def sweep(mbit: tuple[int, int], cases: Sequence[Case], folder: Path, rounds: int, launches: int) -> Swept:
    """One sweep of so many rounds of each case; in one launch where they cannot be shared out."""
    launches = math.gcd(rounds, launches)
    entries = sweep_over(mbit, cases, folder, rounds=rounds // launches, launches=launches)
    by_name = {entry.name: entry for entry in entries}
    swept = Swept({case: by_name[label(case)] for case in cases})
    assert all(len(entry.round_s) == rounds for entry in swept.entries.values())
    return swept


@pytest.mark.parametrize("case", RACE, ids=names_of)
def test_race(row: Row, case: Case, tmp_path: Path) -> None:
    rounds = row.rounds(RACE_ROUNDS)
    swept = row.once("case", lambda cases: sweep(MBIT, cases, tmp_path, rounds, 1), needs=lambda _: [FASTER])
    race = judge(list(swept.entries.values()))
    bases = [FASTER] if case != FASTER else []
    report_case(row, "race of interfaces", swept, case, bases, link_mbit=list(MBIT), race=asdict(race))
    if row.judges(RACE_ROUNDS):
        # Repeated or not, alone or beside the other: the faster link takes part.
        assert NAMES[1] in race.winner.split(","), race.lines
        [place] = [place for place in race.places if place.interface == names_of(case)]
        assert case.picks != (0,) or place.word == "slower", race.lines


def step_bases(case: Case) -> list[Case]:
    """Plain DDP over the same link, and for 16 bits of ours torch's."""
    hooks = {"plain": [], "torch_bf16": ["plain"]}.get(case.hook, ["plain", "torch_bf16"])
    return [Case("step", 2, case.picks, model=case.model, hook=hook) for hook in hooks]


@pytest.mark.parametrize("case", STEPS, ids=label)
def test_step(row: Row, case: Case, tmp_path: Path) -> None:
    rounds = row.rounds(STEP_ROUNDS)
    swept = row.once(
        "case", lambda cases: sweep(MBIT, cases, tmp_path, rounds, STEP_LAUNCHES), needs=step_bases
    )
    group = f"step of {case.model}, link of {MBIT[case.picks[0]]} Mbit per s"
    report_case(row, group, swept, case, step_bases(case), link_mbit=list(MBIT))
    if row.judges(STEP_ROUNDS) and case.hook in OURS:
        torchs = swept.entries[Case("step", 2, case.picks, model=case.model, hook="torch_bf16")]
        # Where the link is the price, an exchange that leaves half of it idle stands out.
        assert ratio_in_pairs(swept.entries[case].round_s, torchs.round_s).low < 1.1


@pytest.mark.parametrize("place", places(REDUCES), ids=lambda place: f"{label(place[1])}-{place[0]}")
@pytest.mark.parametrize(("second_mbit", "word"), [(180, "faster"), (150, "no difference")])
def test_two_runs_are_distinguished_where_the_link_is_faster_by_a_fifth(
    row: Row, second_mbit: int, word: str, place: tuple[str, Case], tmp_path: Path
) -> None:
    """Two result files, made one after the other, of which nothing is paired."""
    rounds = row.rounds(RUN_ROUNDS)

    def measure(chosen: Sequence[tuple[str, Case]]) -> TwoRuns:
        cases = list(dict.fromkeys(case for _, case in chosen))
        swept = {}
        for run, mbit in zip(RUNS, (MBIT[0], second_mbit), strict=True):
            folder = tmp_path / run
            folder.mkdir()
            swept[run] = sweep((mbit, mbit), cases, folder, rounds, RUN_LAUNCHES)
        return TwoRuns(swept)

    runs = row.once("place", measure)
    group = f"two runs of {label(place[1])}, {MBIT[0]} and {second_mbit} Mbit per s"
    runs.report(row, place, group, link_mbit=[MBIT[0], second_mbit])
    if row.judges(RUN_ROUNDS):
        assert runs.word(place[1]) == word
