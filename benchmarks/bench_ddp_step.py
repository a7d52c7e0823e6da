"""DDP's training step over models, bucket sizes, hooks, interfaces and world sizes, by the engine of `pyddpdiag bench`.

Run: python3 dev.py bench benchmarks/bench_ddp_step.py
All cases of a sweep run interleaved in the same ranks, in several sittings; then each is one benchmark, whose
`extra_info` is that of a result file (docs/benchmarks.md), so `pyddpdiag compare` reads the JSON of this run. What
pytest-benchmark itself times is nothing; its `stats` are of no use here.
"""

from __future__ import annotations

import time
from typing import Any

import psutil
import pytest

from pyddpdiag.bench.cases import HOOKS, Case, allreduce_cases, step_cases
from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.engine.settings import SweepSettings
from pyddpdiag.bench.engine.sweep import Outcome, run_sweep
from pyddpdiag.bench.machine import load_before
from pyddpdiag.bench.results import Entry, ResultFile, stamped
from pyddpdiag.train.interfaces import loopback

ROUNDS, SITTINGS = 20, 4
LOOPBACK = loopback() or ""
STEPS = [
    *step_cases(["digits", "mlp"], list(HOOKS), [None], [2]),
    *step_cases(["digits", "mlp"], ["plain", "native_bf16"], [0.25, 1.0, 5.0, 100.0], [2]),
    *step_cases(["digits", "mlp"], ["plain"], [None], [1, 4]),
    # One interface twice; links that differ are in bench_interfaces.py.
    *step_cases(["mlp"], ["plain"], [None], [2], [(0, 0)]),
]
REDUCES = allreduce_cases([2**12, 2**16, 2**20, 2**23], [2])
SMALL = list(dict.fromkeys([*STEPS, *REDUCES]))
LARGE = [
    *step_cases(["resnet50", "bert_base"], ["plain", "native_bf16"], [None], [2]),
    *step_cases(["resnet50", "bert_base"], ["plain"], [None], [1]),
    # Not BERT: 4 ranks of it on two cores would take as long as all others.
    *step_cases(["resnet50"], ["plain"], [None], [4]),
]
# A step takes seconds on two cores.
LARGE_ROUNDS = 5
SAME = allreduce_cases([2**power for power in range(10, 22)], [2])


def sweep(cases: list[Case], rounds: int = ROUNDS, sittings: int = SITTINGS) -> Outcome:
    """One sweep; an error of a rank is the test's."""
    settings = SweepSettings(
        cases=tuple(cases),
        names=(LOOPBACK,),
        rounds=rounds,
        sittings=sittings,
        started=time.time(),
        trace_folder="later",
        timeout_s=300,
    )
    outcome = run_sweep(settings, None)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def by_case(cases: list[Case], outcome: Outcome) -> dict[Case, Entry]:
    by_name = {entry.name: entry for entry in outcome.entries}
    return {case: by_name[outcome.collected.label(index)] for index, case in enumerate(cases)}


@pytest.fixture(scope="module")
def measured() -> dict[Case, Entry]:
    """Every small case's entry, from one sweep."""
    return by_case(SMALL, sweep(SMALL))


@pytest.fixture(scope="module")
def measured_large() -> dict[Case, Entry]:
    """Every large case's entry, from one sweep."""
    pytest.importorskip("transformers", reason="the large models need the package transformers")
    return by_case(LARGE, sweep(LARGE, LARGE_ROUNDS, sittings=1))


def label(case: Case) -> str:
    return case.label(",".join(LOOPBACK for _ in case.picks))


@pytest.mark.parametrize("case", SMALL, ids=label)
def test_case(benchmark: Any, measured: dict[Case, Entry], case: Case) -> None:
    keep(benchmark, measured[case], ROUNDS)


@pytest.mark.parametrize("case", LARGE, ids=label)
def test_large_case(benchmark: Any, measured_large: dict[Case, Entry], case: Case) -> None:
    keep(benchmark, measured_large[case], LARGE_ROUNDS)


def keep(benchmark: Any, entry: Entry, rounds: int) -> None:
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(stamped(entry.extra_info, entry.round_s))
    assert len(entry.round_s) == rounds


def test_two_runs_of_the_same_are_no_difference(benchmark: Any) -> None:
    """At least 95% of cases of two separate runs, one after the other, on this machine as it is."""
    quiet = 0.5 * (psutil.cpu_count() or 1)
    # The cases before this one are load as well: it takes a minute until they are forgotten.
    limit = time.monotonic() + 180
    while load_before() > quiet and time.monotonic() < limit:
        time.sleep(5)
    if load_before() > quiet:
        pytest.skip(
            f"the machine is busy (load {load_before():.1f}): two runs would differ by what else it does"
        )
    first = sweep(SAME, rounds=30, sittings=5).entries
    second = benchmark.pedantic(lambda: sweep(SAME, rounds=30, sittings=5).entries, rounds=1)
    files = [ResultFile(f"{name}.json", {}, tuple(e)) for name, e in (("first", first), ("second", second))]
    words = [pair.word for pair in compare(files, with_article=False).pairs]
    benchmark.extra_info["words"] = words
    assert words.count("no difference") >= 0.95 * len(words), words
