"""The test after each epoch; every rank does its share."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.workloads.samples import Samples, fetched, share

_BATCH = 256


def scores_and_loss(
    module: nn.Module, inputs: Tensor, targets: Tensor, amp: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (m, classes), targets (m,) and the summed loss; every target of a sample counts by itself."""
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=amp):
        scores = module(inputs)
    flat, wanted = scores.float().flatten(0, -2), targets.flatten()
    return flat, wanted, functional.cross_entropy(flat, wanted, reduction="sum")


@torch.no_grad()
def evaluate(
    module: nn.Module, samples: Samples, place: Place, device: torch.device, *, workers: int, amp: bool
) -> tuple[float, float]:
    """Mean loss and accuracy per target over all samples; all ranks must call it."""
    for buffer in module.buffers():
        # Each rank has its own batch normalisation statistics until the next step takes those of rank 0.
        dist.broadcast(buffer, src=0)
    part = share(len(samples), place.world_size, place.rank)
    mine = np.arange(part.start, part.stop)
    batches = [mine[i : i + _BATCH] for i in range(0, len(mine), _BATCH)]
    loss, correct, count = 0.0, 0, 0
    module.eval()
    for inputs, targets in fetched(samples, batches, None, workers):
        scores, wanted, summed = scores_and_loss(module, inputs.to(device), targets.to(device), amp)
        loss += summed.item()
        correct += int((scores.argmax(1) == wanted).sum())
        count += len(wanted)
    module.train()
    totals = total(loss, correct, count)
    return totals[0] / totals[2], totals[1] / totals[2]


def total(*values: float) -> list[float]:
    """The sums of the values over all ranks, in double precision."""
    totals: Tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(totals)
    sums: list[float] = totals.tolist()
    return sums
