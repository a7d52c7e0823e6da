"""A training in which rank 1 has fewer batches than the others. A script as it is: it knows nothing of pyddpdiag."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

BATCH, BATCHES, FEWER = 4, 12, 8


def train(rank: int, *, joined: bool = False, even: bool = False) -> str:
    """What the training failed with; empty: it came to its end."""
    torch.manual_seed(3)
    ddp = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    samples = BATCH * (FEWER if rank == 1 and not even else BATCHES)
    loader = DataLoader(TensorDataset(torch.randn(samples, 6)), batch_size=BATCH)
    try:
        with Join([ddp]) if joined else nullcontext():
            for (batch,) in loader:
                optimizer.zero_grad()
                ddp(batch).square().mean().backward()
                optimizer.step()
    except RuntimeError as error:
        return str(error)
    return ""
