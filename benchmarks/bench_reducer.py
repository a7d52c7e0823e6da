"""GradientReducer beside the best preallocated loop written by hand, backward pass included, on 2 ranks.

Run: python3 dev.py bench benchmarks/bench_reducer.py
The variants of a list run interleaved in the same processes, and with them the parts that no loop can do without.
"""

from __future__ import annotations

import pytest
from harness.gradients import LISTS
from harness.ranks import run
from harness.reducers import PARTS, VARIANTS, measure
from harness.row import Row, speedups

ROUNDS = 15


def _by_hand(variant: str) -> list[str]:
    """The loop by hand that a variant is compared with."""
    return [variant.replace("GradientReducer", "torch by hand")] if "GradientReducer" in variant else []


@pytest.mark.parametrize("variant", [*VARIANTS, *PARTS])
@pytest.mark.parametrize("kind", LISTS)
def test_reducer(row: Row, kind: str, variant: str) -> None:
    rounds = row.rounds(ROUNDS)
    measured = row.once("variant", lambda names: run(measure, 2, kind, names, rounds), needs=_by_hand)
    row.report(
        f"averaging {kind}",
        measured[variant],
        speedup_over=speedups(measured, variant, _by_hand(variant)),
        ranks=2,
        list=kind,
    )
