"""A few steps of training with each way to average gradients, for tests that compare them."""

from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import read_trace
from support.models import batch, branches, gradient_bytes

STEPS = 4


def paths(path: Path) -> set[tuple[bool, bool]]:
    """Whether the buckets of a trace went through shared memory, and whether they were compressed."""
    flags = read_trace(path).of_kind(Kind.BUCKET)["flags"]
    return {(bool(f & Flag.SHARED), bool(f & Flag.COMPRESSED)) for f in flags}


def train(
    rank: int, way: str, folder: str, **options: Any
) -> tuple[list[list[bytes]], list[torch.Tensor], set[Any]]:
    """Averages a small model's gradients by one way to register: "attach", "hook" or "reducer".

    Args:
        rank: ours.
        way: how.
        folder: for the trace.
        options: of the way, such as `shared_memory`.

    Returns:
        Each step's gradients as bytes, the last ones, and which paths the buckets took.
    """
    model = branches(torch.float32)
    gradients = []
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        if way == "reducer":
            reducer = pyddpdiag.GradientReducer(
                model.named_parameters(), bucket_cap_mb=0.002, recorder=recorder, **options
            )
        else:
            model = DistributedDataParallel(model, bucket_cap_mb=0.002)
            if way == "attach":
                recorder.attach(model, **options)
            else:
                model.register_comm_hook(None, recorder.hook(**options))
        for step in recorder.steps(range(STEPS)):
            model.zero_grad()
            model(batch(rank, step, torch.float32)).square().mean().backward()
            if way == "reducer":
                reducer.all_reduce()
            gradients.append(gradient_bytes(model))
        recorder.close()
        last = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        return gradients, last, paths(recorder.path)


def off_by_rounding(folder: str, **options: Any) -> dict[bool, float]:
    """How far the sum of many steps of the same tiny gradient is off in bfloat16, with and without error feedback."""
    off = {}
    for feedback in (False, True):
        model = torch.nn.Linear(64, 4, bias=False)
        ddp = DistributedDataParallel(model)
        with pyddpdiag.Recorder(f"{folder}/{feedback}", capacity_mb=1) as recorder:
            recorder.attach(ddp, compress="bf16", error_feedback=feedback, **options)
            # The same on all ranks, so that their addition is exact: it is not fed back.
            x = torch.linspace(0.1, 1.1, 64).repeat(2, 1)
            exact = torch.zeros(4, 64, dtype=torch.float64)
            total = torch.zeros(4, 64, dtype=torch.float64)
            for step in range(50):
                ddp.zero_grad()
                ddp(x).sum().backward()
                assert model.weight.grad is not None
                if step >= 2:  # DDP makes new buckets after the first step; their residual begins at zero
                    total += model.weight.grad.double()
                    exact += 2 * x[0].double()
            off[feedback] = float(((total - exact).abs() / exact).max())
    return off
