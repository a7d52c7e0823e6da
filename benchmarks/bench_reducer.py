"""GradientReducer beside the best preallocated loop written by hand, backward pass included, on 2 ranks.

Run: python3 dev.py bench benchmarks/bench_reducer.py
The variants run interleaved in the same processes; figures are medians over rounds with 95% intervals, and stand in
the JSON under `extra_info`.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness.gradients import LISTS
from harness.ranks import run
from harness.reducers import PARTS, VARIANTS, measure

from pyddpdiag.bench.intervals import estimate, ratio

ROUNDS = 15


@pytest.mark.parametrize("kind", LISTS)
def test_reducer(benchmark: Any, kind: str) -> None:
    measured = benchmark.pedantic(run, args=(measure, 2, kind, ROUNDS), rounds=1, iterations=1)
    figures: dict[str, Any] = {}
    for name in VARIANTS:
        base = "torch by hand " + name.rpartition(" ")[2]
        figures[name] = {
            "ms": estimate([1e3 * s for s in measured[name]]).as_dict(),
            "speedup_over_torch": ratio(measured, base, name).as_dict(),
        }
        print(
            f"\n{kind}: {name:20} {estimate([1e3 * s for s in measured[name]])} ms,"
            f" torch by hand / it {ratio(measured, base, name)}",
            end="",
        )
    for name in PARTS:
        figures[name] = {"ms": estimate([1e3 * s for s in measured[name]]).as_dict()}
        print(f"\n{kind}: {name:20} {estimate([1e3 * s for s in measured[name]])} ms", end="")
    benchmark.extra_info.update(ranks=2, list=kind, rounds=ROUNDS, figures=figures)
