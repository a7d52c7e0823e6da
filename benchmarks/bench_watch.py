"""What statistics and the sentinel cost at their default intervals, as a share of the training step.

Run: python3 dev.py bench benchmarks/bench_watch.py
Steps that are watched stand between steps that are not, in one run: their difference, spread over the interval, is
the cost. It includes all else that the probes do more in such steps (records of parameters, listening to other
collectives).
Intervals are over the cycles of 64 steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness.ranks import run
from harness.watch import MODELS, SENTINEL_INTERVAL, STATISTICS_INTERVAL, measure

from pyddpdiag.bench.intervals import estimate

CYCLES = 16


@pytest.mark.parametrize("kind", MODELS)
def test_watch(benchmark: Any, kind: str) -> None:
    measured = benchmark.pedantic(run, args=(measure, 2, kind, CYCLES), rounds=1, iterations=1)
    cycles = 1e3 * np.array(measured).reshape(CYCLES, SENTINEL_INTERVAL)
    place = np.arange(SENTINEL_INTERVAL)
    compared = cycles[:, 0]
    watched = cycles[:, (place % STATISTICS_INTERVAL == 0) & (place > 0)]
    # Not the step right after a watched one, which may still pay for it.
    plain = np.median(cycles[:, place % STATISTICS_INTERVAL > 1], axis=1)
    extra = (compared - plain) + (watched - plain[:, None]).sum(axis=1)
    share = extra / (plain * SENTINEL_INTERVAL)
    figures = {
        "plain_step_ms": estimate(plain.tolist()).as_dict(),
        "step_with_statistics_ms": estimate(watched.ravel().tolist()).as_dict(),
        "step_with_both_ms": estimate(compared.tolist()).as_dict(),
        "share_of_all_steps": estimate(share.tolist()).as_dict(),
    }
    print(
        f"\n{kind}: step {estimate(plain.tolist())} ms, with statistics {estimate(watched.ravel().tolist())} ms, "
        f"with the sentinel too {estimate(compared.tolist())} ms; share of all steps {estimate(share.tolist())}",
        end="",
    )
    benchmark.extra_info.update(ranks=2, model=kind, cycles=CYCLES, figures=figures)
