"""Averaging in shared memory against Gloo over the loopback interface: sums alone, DDP's step, and without DDP.

Sums alone also against Open MPI and MPICH, where they are installed, and against what memory allows.

Run: python3 dev.py bench benchmarks/bench_shared_memory.py
What is compared runs interleaved in the same ranks; DDP's steps in several launches, by the engine of
`pyddpdiag bench`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from harness import programs, reducers, sums
from harness.ranks import run
from harness.row import Row, speedups
from harness.sweeps import report_case, sweep

from pyddpdiag.bench.cases import Case, step_cases

ROUNDS, LAUNCHES = 20, 4
IN_A_ROW = 50
SIZES = {"4KiB": 2**12, "64KiB": 2**16, "1MiB": 2**20, "25MiB": 25 * 2**20, "100MiB": 100 * 2**20}
# From the first bucket on that lies in large pages.
PAGED = {"1MiB": 2**20, "4MiB": 2**22, "25MiB": 25 * 2**20, "100MiB": 100 * 2**20}
CASES = [
    *step_cases(["mlp", "digits-cnn"], ["plain", "native", "native+bf16", "native+shared"], [None], [2]),
    *step_cases(["mlp"], ["plain", "native+shared"], [None], [4]),
    # What is left of a step where nothing is averaged.
    *step_cases(["mlp"], ["noop"], [None], [2]),
    # Hundreds of tiny buckets.
    *step_cases(["digits-cnn"], ["plain", "native+shared"], [0.001], [2]),
]


def label(case: Case) -> str:
    return case.label("")


def base(case: Case) -> list[Case]:
    """DDP without a hook, with the same ranks and buckets; for shared memory, also in 16 bits and without averages."""
    others = ("plain", "native+bf16", "noop") if case.hook == "native+shared" else ("plain",)
    return [one for one in (replace(case, hook=hook) for hook in others) if one != case and one in CASES]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_case(row: Row, case: Case) -> None:
    rounds = row.rounds(ROUNDS)
    swept = row.once("case", lambda cases: sweep(cases, rounds, LAUNCHES), needs=base)
    report_case(row, f"step of {case.model}", swept, case, base(case))
    assert len(swept.entries[case].round_s) == rounds


OURS = (sums.SHARED, programs.FROM_CPP)


def _gloo(way: str) -> list[str]:
    return [sums.GLOO] if way == sums.SHARED else []


def _libraries(way: str) -> list[str]:
    """What sums in shared memory are compared with, as far as it can run here."""
    others = [programs.OPEN_MPI, programs.MPICH]
    if way == sums.SHARED:
        others.append(programs.FROM_PYTHON)
    known = [name for name in others if not programs.why_not(name)]
    return [sums.GLOO, *known] if way in OURS else []


def _rivals(way: str) -> list[str]:
    limit = [] if programs.why_not(programs.LIMIT) else [programs.LIMIT]
    return _libraries(way) + (limit if way in OURS else [])


@pytest.mark.parametrize("way", [*sums.WAYS, *sums.OTHERS])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_sum_alone(row: Row, ranks: int, size: str, way: str) -> None:
    if way in sums.OTHERS and (why := programs.why_not(way)):
        pytest.skip(why)
    _sum(row, size, way, ranks, SIZES[size], 1, _rivals)


@pytest.mark.parametrize("way", [*sums.WAYS, *sums.OTHERS[:-1]])
@pytest.mark.parametrize("size", ["4KiB", "64KiB", "1MiB"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_sums_in_a_row(row: Row, ranks: int, size: str, way: str) -> None:
    """Small ones with warm caches. Alone, they are about what it takes to get the code from memory."""
    if why := programs.why_not(way):
        pytest.skip(why)
    _sum(row, f"{size}, {IN_A_ROW} in a row", way, ranks, SIZES[size], 1, _libraries, IN_A_ROW)


@pytest.mark.parametrize("way", [programs.FROM_CPP, programs.SMALL_PAGES])
@pytest.mark.parametrize("size", PAGED)
def test_pages(row: Row, size: str, way: str) -> None:
    """What it is worth that large buckets lie in pages of 2 MiB, where the kernel has such."""
    if why := programs.why_not(way):
        pytest.skip(why)
    _sum(row, f"{size} by pages", way, 2, PAGED[size], 1, _small_pages)


def _small_pages(way: str) -> list[str]:
    return [programs.SMALL_PAGES] if way == programs.FROM_CPP else []


@pytest.mark.parametrize("way", sums.WAYS)
def test_tiny_buckets(row: Row, way: str) -> None:
    _sum(row, "40 buffers of 1KiB", way, 2, 2**10, 40, _gloo)


def _sum(
    row: Row,
    name: str,
    way: str,
    ranks: int,
    size: int,
    count: int,
    bases: Callable[[str], list[str]],
    in_a_row: int = 1,
) -> None:
    """Measure and report the sum of `count` buffers of `size` bytes, and how it compares with `bases`."""
    rounds = row.rounds(ROUNDS)
    measured = row.once(
        "way",
        lambda ways: run(
            sums.measure,
            ranks,
            size,
            count,
            [one for one in ways if not programs.why_not(one)],
            rounds,
            in_a_row,
        ),
        needs=bases,
    )
    row.report(
        f"sum of {name}, {ranks} ranks",
        measured[way],
        speedup_over=speedups(measured, way, bases(way)),
        ranks=ranks,
        bytes=count * size,
    )


REDUCERS: dict[str, list[str]] = {
    "torch by hand f32": [],
    "GradientReducer f32": [],
    reducers.BY_HAND_VIEWS: [],
    reducers.SHARED: ["torch by hand f32", "GradientReducer f32"],
    reducers.SHARED_VIEWS: ["torch by hand f32", reducers.BY_HAND_VIEWS, reducers.SHARED],
}
"""Ways without DDP, and what each is compared with."""


@pytest.mark.parametrize("variant", REDUCERS)
def test_reducer(row: Row, variant: str) -> None:
    rounds = row.rounds(ROUNDS)
    measured = row.once(
        "variant",
        lambda names: run(reducers.measure, 2, "resnet50", names, rounds),
        needs=lambda name: REDUCERS[name],
    )
    row.report(
        "averaging resnet50 in shared memory",
        measured[variant],
        speedup_over=speedups(measured, variant, REDUCERS[variant]),
        ranks=2,
        list="resnet50",
    )
