"""Steps of DDP on an accelerator, its buckets over Gloo or in shared memory, in a process that is a rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from harness.rounds import interleave
from pyddpdiag.ranks.session import Session

BASE = "plain"
HOOKS = (BASE, "builtin", "timed", "native", "native+bf16", "native+shared")
MODELS = {
    # 25 MiB of gradients, which take next to nothing to compute.
    "wide": lambda: nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))),
    # 200 small layers in buckets of 64 KiB: what a bucket costs.
    "many": lambda: nn.Sequential(*(nn.Linear(64, 64) for _ in range(200))),
}
CAPS_MIB = {"wide": 25.0, "many": 0.0625}
IN_A_ROW = 5


def _step(model: str, hook: str, folder: Path) -> Callable[[], float]:
    torch.manual_seed(1)
    device = torch.device("cuda", 0)
    module = MODELS[model]().to(device)
    ddp = DistributedDataParallel(module, device_ids=[0], bucket_cap_mb=CAPS_MIB[model])
    recorder = pyddpdiag.Recorder(folder, sample_connections=False)
    if hook == "builtin":
        ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    elif hook == "timed":
        ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
    elif hook.startswith("native"):
        recorder.attach(
            ddp,
            compress="bf16" if "bf16" in hook else None,
            shared_memory="require" if "shared" in hook else "off",
        )
    data = torch.randn(16, next(module.parameters()).shape[1], device=device)

    def step() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(IN_A_ROW):
            ddp.zero_grad()
            ddp(data).square().mean().backward()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / IN_A_ROW

    return step


def measure(session: Session, model: str, hooks: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Seconds per forward and backward pass with each hook in each round; all ranks share the first device."""
    del session
    with TemporaryDirectory() as folder:
        steps = {hook: _step(model, hook, Path(folder, hook)) for hook in hooks}
        for step in steps.values():
            step()
        return interleave(steps, rounds)
