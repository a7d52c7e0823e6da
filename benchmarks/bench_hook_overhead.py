"""What the probes cost, beside plain DDP and torch's own hooks.

Run: python3 dev.py bench benchmarks/bench_hook_overhead.py
The hooks of a case run interleaved in the same processes; a round is the mean of its training steps.
"""

from __future__ import annotations

import pytest
from harness.hooks import HOOKS, measure
from harness.ranks import run
from harness.rounds import difference
from harness.row import Row, ratios

BUCKETS = 40
BASE = "builtin"
# Torch's profiler beside a busy thread takes minutes.
TINY = [(busy, hook) for busy in (False, True) for hook in HOOKS if not (busy and hook == "torch.profiler")]


def _base(hook: str) -> list[str]:
    return [] if hook == BASE else [BASE]


@pytest.mark.parametrize(
    ("busy", "hook"),
    TINY,
    ids=[f"{'busy-python-thread' if busy else 'idle'}-{hook}" for busy, hook in TINY],
)
def test_tiny_buckets(row: Row, busy: bool, hook: str) -> None:
    """40 buckets of 1 KiB in one process: the price of one bucket."""
    usual, steps = (12, 2) if busy else (60, 8)
    rounds = row.rounds(usual)
    measured = row.once(
        "hook", lambda hooks: run(measure, 1, str(BUCKETS), hooks, rounds, steps, busy), needs=_base
    )
    per_bucket = {name: [1e6 * s / BUCKETS for s in measured[name]] for name in (hook, BASE)}
    row.report(
        f"step of {BUCKETS} tiny buckets, {'busy Python thread' if busy else 'idle'}",
        measured[hook],
        ratio_to=ratios(measured, hook, _base(hook)),
        us_per_bucket_over_builtin=difference(per_bucket, hook, BASE).as_dict(),
        ranks=1,
        steps_per_round=steps,
        busy_thread=busy,
    )


@pytest.mark.parametrize("hook", ["plain", "builtin", "native", "timed"])
def test_full_size(row: Row, hook: str) -> None:
    """25 million parameters, 12 buckets, 2 ranks: whether a step's time changes at all."""
    rounds = row.rounds(20)
    measured = row.once("hook", lambda hooks: run(measure, 2, "full", hooks, rounds, 1, False), needs=_base)
    row.report(
        "step of 25 million parameters",
        measured[hook],
        ratio_to=ratios(measured, hook, _base(hook)),
        ranks=2,
        steps_per_round=1,
    )
