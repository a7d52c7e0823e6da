"""DDP's step with its buckets on an accelerator: over Gloo and in shared memory, with our hooks and without.

Run: python3 dev.py bench benchmarks/bench_accelerator.py
The ranks share the first CUDA device. What is compared runs interleaved in the same ranks.
"""

from __future__ import annotations

import pytest
import torch
from harness.device_steps import BASE, HOOKS, MODELS, measure
from harness.ranks import run
from harness.row import Row, ratios

ROUNDS = 20

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def _bases(hook: str) -> list[str]:
    return [] if hook == BASE else [BASE]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_step(row: Row, ranks: int, model: str, hook: str) -> None:
    rounds = row.rounds(ROUNDS)
    measured = row.once("hook", lambda hooks: run(measure, ranks, model, hooks, rounds), needs=_bases)
    row.report(
        f"step of {model} on a device, {ranks} ranks",
        measured[hook],
        ratio_to=ratios(measured, hook, _bases(hook)),
        ranks=ranks,
        device=torch.cuda.get_device_name(0),
    )
