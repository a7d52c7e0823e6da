"""DDP's training step over models, bucket sizes, hooks, interfaces and world sizes, by the engine of `pyddpdiag bench`.

Run: python3 dev.py bench benchmarks/bench_ddp_step.py
The selected cases run interleaved in the same ranks, in several launches. Each one's `extra_info` is also that of a
result file (docs/benchmarks.md), so `pyddpdiag compare` reads the JSON of this run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil
import pytest
from harness.row import Row
from harness.sweeps import LOOPBACK, RUNS, TwoRuns, places, report_case, sweep

from pyddpdiag.bench.cases import HOOKS, Case, allreduce_cases, step_cases
from pyddpdiag.bench.machine import load_before

ROUNDS, LAUNCHES = 20, 4
STEPS = [
    *step_cases(["digits-cnn", "mlp"], list(HOOKS), [None], [2]),
    *step_cases(["digits-cnn", "mlp"], ["plain", "native+bf16"], [0.25, 1.0, 5.0, 100.0], [2]),
    *step_cases(["digits-cnn", "mlp"], ["plain"], [None], [1, 4]),
    # One interface twice; links that differ are in bench_interfaces.py.
    *step_cases(["mlp"], ["plain"], [None], [2], [(0, 0)]),
]
REDUCES = allreduce_cases([2**12, 2**16, 2**20, 2**23], [2])
SMALL = list(dict.fromkeys([*STEPS, *REDUCES]))
LARGE = [
    *step_cases(["resnet50", "bert_base"], ["plain", "native+bf16"], [None], [2]),
    *step_cases(["resnet50", "bert_base"], ["plain"], [None], [1]),
    # Not BERT: 4 ranks of it on two cores would take as long as all others.
    *step_cases(["resnet50"], ["plain"], [None], [4]),
]
# A step takes seconds on two cores.
LARGE_ROUNDS = 5
SAME = allreduce_cases([2**power for power in range(10, 22)], [2])
SAME_ROUNDS = 30


def label(case: Case) -> str:
    return case.label(",".join(LOOPBACK for _ in case.picks))


def group_of(case: Case) -> str:
    return f"step of {case.model}" if case.kind == "step" else "all-reduce"


def base(case: Case) -> list[Case]:
    """What a step is compared with: DDP without a hook, at its own bucket sizes, on 2 ranks."""
    plain = Case("step", 2, model=case.model, hook="plain")
    return [plain] if case.kind == "step" and case != plain else []


@pytest.mark.parametrize("case", SMALL, ids=label)
def test_case(row: Row, case: Case) -> None:
    rounds = row.rounds(ROUNDS)
    swept = row.once("case", lambda cases: sweep(cases, rounds, LAUNCHES), needs=base)
    report_case(row, group_of(case), swept, case, base(case))
    assert len(swept.entries[case].round_s) == rounds


@pytest.mark.parametrize("case", LARGE, ids=label)
def test_large_case(row: Row, case: Case) -> None:
    pytest.importorskip("transformers", reason="BERT needs the package transformers")
    rounds = row.rounds(LARGE_ROUNDS)
    swept = row.once("case", lambda cases: sweep(cases, rounds, 1), needs=base)
    report_case(row, group_of(case), swept, case, base(case))
    assert len(swept.entries[case].round_s) == rounds


def wait_until_quiet() -> None:
    quiet = 0.5 * (psutil.cpu_count() or 1)
    # The cases before this one are load as well: it takes a minute until they are forgotten.
    limit = time.monotonic() + 180
    # None: the system keeps no load, and there is nothing to wait for.
    while (load := load_before() or 0.0) > quiet and time.monotonic() < limit:
        time.sleep(5)
    if load > quiet:
        pytest.skip(f"the machine is busy (load {load:.1f}): two runs would differ by what else it does")


@pytest.mark.parametrize("place", places(SAME), ids=lambda place: f"{label(place[1])}-{place[0]}")
def test_two_runs_of_the_same_are_no_difference(row: Row, place: tuple[str, Case]) -> None:
    """At least 95% of cases of two separate runs, one after the other, on this machine as it is."""
    rounds = row.rounds(SAME_ROUNDS)

    def measure(chosen: Sequence[tuple[str, Case]]) -> TwoRuns:
        if row.timed:
            wait_until_quiet()
        cases = list(dict.fromkeys(case for _, case in chosen))
        return TwoRuns({run: sweep(cases, rounds, launches=5) for run in RUNS})

    runs = row.once("place", measure)
    words = runs.report(row, place, f"two runs of {label(place[1])}")
    if row.judges(SAME_ROUNDS):
        different = words.count("faster") + words.count("slower")
        assert runs.word(place[1]) not in ("faster", "slower") or different <= 0.05 * len(words)
