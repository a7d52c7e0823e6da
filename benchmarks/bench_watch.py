"""What statistics and the sentinel cost at their default intervals, as a share of the training step.

Run: python3 dev.py bench benchmarks/bench_watch.py
Steps that are watched stand between steps that are not, in one run: their difference, spread over the interval, is
the cost. It includes all else that the probes do more in such steps (records of parameters, listening to other
collectives). One run measures all kinds of steps of a model, so selecting fewer kinds takes no less time.
A round is a cycle of 64 steps: the median of its steps of a kind.
"""

from __future__ import annotations

import pytest
from harness.ranks import run
from harness.row import Row, ratios
from harness.watch import KINDS_OF_STEPS, MODELS, measure, watched

from pyddpdiag.bench.intervals import estimate

CYCLES = 16
PLAIN = KINDS_OF_STEPS[0]


@pytest.mark.parametrize("step", KINDS_OF_STEPS)
@pytest.mark.parametrize("kind", MODELS)
def test_watch(row: Row, kind: str, step: str) -> None:
    cycles = row.rounds(CYCLES)
    measured = row.once("step", lambda _: watched(run(measure, 2, kind, cycles)))
    row.report(
        f"watched steps, {kind}",
        measured.steps[step],
        ratio_to=ratios(measured.steps, step, [] if step == PLAIN else [PLAIN]),
        ranks=2,
        model=kind,
        share_of_all_steps=estimate(measured.share).as_dict(),
    )
