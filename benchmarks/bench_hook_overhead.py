"""What the probes cost, beside plain DDP and torch's own hooks.

Run: python3 dev.py bench benchmarks/bench_hook_overhead.py
All variants of a case run interleaved in the same processes; the figures are medians over rounds of differences
and ratios within a round, with 95% intervals, and stand in the JSON under `extra_info`. What pytest-benchmark
itself times is the whole case.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness.hooks import HOOKS, measure
from harness.ranks import run

from pyddpdiag.bench.intervals import difference, estimate, ratio

BUCKETS = 40


def _case(
    benchmark: Any, world_size: int, kind: str, hooks: list[str], rounds: int, steps: int, busy: bool
) -> Any:
    def once() -> Any:
        return run(measure, world_size, kind, hooks, rounds, steps, busy)

    measured = benchmark.pedantic(once, rounds=1, iterations=1)
    figures: dict[str, Any] = {}
    for hook in hooks:
        figures[hook] = {
            "step_ms": estimate([1e3 * s for s in measured[hook]]).as_dict(),
            "ratio_to_plain": ratio(measured, hook, "plain").as_dict(),
            "ratio_to_builtin": ratio(measured, hook, "builtin").as_dict(),
        }
        print(
            f"\n{hook:18} step {estimate([1e3 * s for s in measured[hook]])} ms,"
            f" / builtin {ratio(measured, hook, 'builtin')}",
            end="",
        )
    benchmark.extra_info.update(ranks=world_size, rounds=rounds, steps=steps, busy_thread=busy, hooks=figures)
    return measured


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy-python-thread"])
def test_tiny_buckets(benchmark: Any, busy: bool) -> None:
    """40 buckets of 1 KiB in one process: the price of one bucket."""
    hooks = [hook for hook in HOOKS if not (busy and hook == "torch.profiler")]
    rounds, steps = (12, 2) if busy else (60, 8)
    measured = _case(benchmark, 1, str(BUCKETS), hooks, rounds, steps, busy)
    per_bucket = {}
    for hook in hooks:
        over = difference({k: [1e6 * s / BUCKETS for s in v] for k, v in measured.items()}, hook, "builtin")
        per_bucket[hook] = over.as_dict()
        print(f"\n{hook:18} {over} us per bucket over builtin", end="")
    benchmark.extra_info["us_per_bucket_over_builtin"] = per_bucket


def test_full_size(benchmark: Any) -> None:
    """25 million parameters, 12 buckets, 2 ranks: whether a step's time changes at all."""
    measured = _case(benchmark, 2, "full", ["plain", "builtin", "native", "timed"], 20, 1, False)
    assert all(seconds > 0 for values in measured.values() for seconds in values)
