"""Training steps with statistics and sentinel at their default intervals, in a process that is a rank."""

from __future__ import annotations

import gc
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from harness.hooks import full_model
from harness.ranks import join
from pyddpdiag.train.models import DigitsNet

STATISTICS_INTERVAL = 16
SENTINEL_INTERVAL = 64
MODELS = ("digits", "full")


def _digits() -> tuple[torch.nn.Module, torch.Tensor, float]:
    return DigitsNet(), torch.randn(64, 1, 8, 8), 25.0


def measure(rank: int, world_size: int, meeting: str, kind: str, cycles: int) -> list[float]:
    """Seconds of each step, `cycles` times SENTINEL_INTERVAL of them; step 0 is a watched one."""
    join(rank, world_size, meeting)
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
    dist.destroy_process_group()
    # The first cycle warms up.
    return seconds[SENTINEL_INTERVAL:]
