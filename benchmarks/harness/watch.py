"""Training steps with statistics and sentinel at their default intervals, in a process that is a rank."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from harness.hooks import full_model
from pyddpdiag.ranks.session import Session
from pyddpdiag.workloads.networks import DigitsNet

STATISTICS_INTERVAL = 16
SENTINEL_INTERVAL = 64
MODELS = ("digits", "full")
KINDS_OF_STEPS = ("plain", "statistics", "sentinel")


def _digits() -> tuple[torch.nn.Module, torch.Tensor, float]:
    return DigitsNet(), torch.randn(64, 1, 8, 8), 25.0


@dataclass(frozen=True)
class Watched:
    """What the cycles of SENTINEL_INTERVAL steps took.

    Attributes:
        steps: seconds of a step in each cycle, the median where it has several, by KINDS_OF_STEPS: neither looked at
            nor compared, looked at, both.
        share: what looking and comparing took in each cycle, over all its steps had they been plain.
    """

    steps: dict[str, list[float]]
    share: list[float]


def watched(step_s: Sequence[float]) -> Watched:
    """Splits the steps of whole cycles, as `measure` returns them."""
    cycles = np.asarray(step_s, np.float64).reshape(-1, SENTINEL_INTERVAL)
    place = np.arange(SENTINEL_INTERVAL)
    both = cycles[:, 0]
    looked_at = cycles[:, (place % STATISTICS_INTERVAL == 0) & (place > 0)]
    # Not the step right after a watched one, which may still pay for it.
    plain = np.median(cycles[:, place % STATISTICS_INTERVAL > 1], axis=1)
    extra = (both - plain) + (looked_at - plain[:, None]).sum(axis=1)
    kinds = (plain, np.median(looked_at, axis=1), both)
    return Watched(
        {kind: values.tolist() for kind, values in zip(KINDS_OF_STEPS, kinds, strict=True)},
        (extra / (plain * SENTINEL_INTERVAL)).tolist(),
    )


def measure(session: Session, kind: str, cycles: int) -> list[float]:
    """Seconds of each step, `cycles` times SENTINEL_INTERVAL of them; step 0 is a watched one."""
    del session
    torch.manual_seed(0)
    model, x, bucket_cap_mb = full_model() if kind == "full" else _digits()
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    seconds = []
    with (
        tempfile.TemporaryDirectory() as folder,
        pyddpdiag.Recorder(
            folder,
            sentinel="warn",
            statistics_interval=STATISTICS_INTERVAL,
            sentinel_interval=SENTINEL_INTERVAL,
        ) as recorder,
    ):
        recorder.attach(ddp)
        gc.collect()
        gc.disable()
        for _ in range((1 + cycles) * SENTINEL_INTERVAL):
            begin = time.perf_counter()
            ddp.zero_grad(set_to_none=False)
            ddp(x).square().mean().backward()
            seconds.append(time.perf_counter() - begin)
    # The first cycle warms up.
    return seconds[SENTINEL_INTERVAL:]
