"""A training script that knows nothing of pyddpdiag: under torchrun, or with ranks that it spawns itself.

Arguments: "loader" (a DataLoader and evaluations; rank 1 fails once if the launcher restarts it), or "hook FOLDER" (its
own communication hook, no loader), or "hook FOLDER abrupt" (its ranks leave without Python's shutdown).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2
BATCHES = 4
FAILS_IN = 2
STEPS = 5


def made() -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
    return ddp, torch.optim.SGD(ddp.parameters(), lr=0.1)


def with_a_loader() -> None:
    dist.init_process_group("gloo")
    ddp, optimizer = made()
    data = TensorDataset(torch.ones(2 * BATCHES, 8))
    for epoch in range(EPOCHS):
        for number, (x,) in enumerate(DataLoader(data, batch_size=2)):
            loaded = set(sys.modules)
            optimizer.zero_grad()
            ddp(x).square().mean().backward()
            optimizer.step()
            # What the recorder needs is there before the first step, and the analysis never.
            imported = {
                name for name in set(sys.modules) - loaded if name.startswith(("pyddpdiag", "psutil"))
            }
            assert not imported and "pyddpdiag.analyse" not in sys.modules, imported
            first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
            if first and dist.get_rank() == 1 and epoch == 0 and number == FAILS_IN:
                os._exit(3)
        # Evaluations are no steps. The first rank evaluates more than the second.
        with torch.no_grad():
            for (x,) in DataLoader(data, batch_size=2 if dist.get_rank() else 1):
                ddp.module(x)
    print(f"rank {dist.get_rank()} trained, attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    dist.destroy_process_group()


def with_a_hook(rank: int, folder: str, *end: str) -> None:
    dist.init_process_group(
        "gloo", init_method=Path(folder, "meeting").absolute().as_uri(), rank=rank, world_size=2
    )
    ddp, optimizer = made()
    ddp.register_comm_hook(None, fp16_compress_hook)
    other, _ = made()
    for step in range(STEPS):
        optimizer.zero_grad()
        (ddp(torch.full((2, 8), 0.1 * (rank + step))) + other(torch.ones(2, 8))).square().mean().backward()
        optimizer.step()
    torch.save([p.detach() for p in ddp.parameters()], Path(folder, f"weights-{rank}.pt"))
    dist.destroy_process_group()
    if end == ("abrupt",):
        os._exit(0)


if __name__ == "__main__":
    assert not any(name.startswith("pyddpdiag.record") for name in sys.modules)
    if sys.argv[1] == "loader":
        with_a_loader()
    else:
        mp.spawn(with_a_hook, tuple(sys.argv[2:]), nprocs=2)
