"""A training with a trial of cures in one rank, and the same training untouched."""

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.cures import trial_candidates, trial_schedule
from pyddpdiag.model.tried import Tried, tried_to_json
from pyddpdiag.trace.sidecar import read_sidecar
from support.models import batch, branches


def wide() -> torch.nn.Module:
    """8 MiB of gradients that take next to nothing to compute: the step is communication."""
    torch.manual_seed(3)
    return torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))


def short_blocks() -> None:
    """Blocks of the fewest passes, and buckets however small: a short trial, however slow the machine."""
    trial_schedule._BLOCK_S, trial_schedule._NOISY_PASSES = 0.0, 1  # type: ignore[misc]
    trial_candidates._SMALLEST_MIB = 0.0001  # type: ignore[misc]


def checksum(module: torch.nn.Module) -> str:
    """Of all weights, to the last bit."""
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def train(
    rank: int,
    folder: Path | None,
    passes: int,
    trial: pyddpdiag.Trial | None = None,
    *,
    unused: bool = False,
    views: bool = False,
    accumulate: int = 1,
    device: str = "cpu",
) -> tuple[str, dict[str, Any] | None]:
    """Trains with momentum; the weights' checksum, and the sidecar's trial of a recorded training."""
    module = branches(torch.float32, alternate=unused).to(device)
    ddp = DistributedDataParallel(module, find_unused_parameters=unused, gradient_as_bucket_view=views)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    recorder = None
    if folder is not None:
        recorder = pyddpdiag.Recorder(folder, capacity_mb=1, lines=False, sample_connections=False)
        recorder.attach(ddp, trial=trial)
    for number in range(passes):
        for part in range(accumulate):
            with ddp.no_sync() if part + 1 < accumulate else nullcontext():
                ddp(
                    batch(rank, accumulate * number + part, torch.float32).to(device)
                ).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    found = None
    if recorder is not None:
        recorder.close()
        found = noted(recorder.path)
    return checksum(module), None if found is None else tried_to_json(found)


def noted(trace: Path) -> Tried | None:
    """The trial in a rank's sidecar."""
    return read_sidecar(trace.with_suffix(".json"))[0].trial
