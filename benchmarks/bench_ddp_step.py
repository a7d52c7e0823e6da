"""DDP's training step over bucket sizes, hooks and world sizes, by the engine of `pyddpdiag bench`.

Run: python3 dev.py bench benchmarks/bench_ddp_step.py
All cases run interleaved in the same ranks; then each is one benchmark, whose `extra_info` is that of a result file
(docs/benchmarks.md), so `pyddpdiag compare` reads the JSON of this run. What pytest-benchmark itself times is
nothing; its `stats` are of no use here.
"""

from __future__ import annotations

import time
from typing import Any

import psutil
import pytest

from pyddpdiag.bench.cases import Case, allreduce_cases, step_cases
from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.engine.settings import SweepSettings
from pyddpdiag.bench.engine.sweep import Outcome, run_sweep
from pyddpdiag.bench.machine import load_before
from pyddpdiag.bench.results import Entry, ResultFile, stamped

ROUNDS = 20
STEPS = [
    *step_cases(["digits"], ["plain", "native", "timed", "builtin", "torch_bf16"], [None], [2]),
    *step_cases(["digits"], ["plain"], [0.25, 1.0], [2]),
    *step_cases(["mlp"], ["plain", "native", "torch_bf16"], [None, 1.0], [2]),
    *step_cases(["digits"], ["plain"], [None], [1, 4]),
]
REDUCES = allreduce_cases([2**12, 2**16, 2**20, 2**23], [2])
SAME = allreduce_cases([2**power for power in range(10, 22)], [2])


def sweep(cases: list[Case], rounds: int = ROUNDS) -> Outcome:
    """One sweep; an error of a rank is the test's."""
    settings = SweepSettings(cases=tuple(cases), rounds=rounds, started=time.time(), trace_folder="later")
    outcome = run_sweep(settings, None)
    if outcome.error is not None:
        raise outcome.error
    return outcome


@pytest.fixture(scope="module")
def measured() -> dict[Case, Entry]:
    """Every case's entry, from one sweep."""
    cases = list(dict.fromkeys([*STEPS, *REDUCES]))
    outcome = sweep(cases)
    by_name = {entry.name: entry for entry in outcome.entries}
    return {case: by_name[outcome.collected.label(index)] for index, case in enumerate(cases)}


@pytest.mark.parametrize("case", list(dict.fromkeys([*STEPS, *REDUCES])), ids=lambda case: case.label(""))
def test_case(benchmark: Any, measured: dict[Case, Entry], case: Case) -> None:
    entry = measured[case]
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(stamped(entry.extra_info, entry.round_s))
    assert len(entry.round_s) == ROUNDS


def test_two_runs_of_the_same_are_no_difference(benchmark: Any) -> None:
    """At least 95% of cases of two separate runs, one after the other, on this machine as it is."""
    load = load_before()
    if load > 0.5 * (psutil.cpu_count() or 1):
        pytest.skip(f"the machine is busy (load {load:.1f}): two runs would differ by what else it does")
    first = sweep(SAME, rounds=30).entries
    second = benchmark.pedantic(lambda: sweep(SAME, rounds=30).entries, rounds=1)
    files = [ResultFile(f"{name}.json", {}, tuple(e)) for name, e in (("first", first), ("second", second))]
    words = [pair.word for pair in compare(files, with_article=False).pairs]
    benchmark.extra_info["words"] = words
    assert words.count("no difference") >= 0.95 * len(words), words
