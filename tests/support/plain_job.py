"""A training script that knows nothing of pyddpdiag: under torchrun, or with ranks that it spawns itself.

Arguments: "loader" (a DataLoader and evaluations; rank 1 fails once if the launcher restarts it), or "hook FOLDER" (a
module with a communication hook of its own and one without, no loader), or "hook FOLDER abrupt" (its ranks leave
without Python's shutdown).
"""

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
    ddp, _ = made()
    ddp.register_comm_hook(None, fp16_compress_hook)
    # Without a hook, in one bucket.
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(400, 400), torch.nn.ReLU())]
    other = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=20)
    parameters = [*ddp.parameters(), *other.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        inner = other(torch.randn(4, 400, generator=generator))
        (inner.square().mean() + ddp(inner[:, :8]).square().mean()).backward()
        optimizer.step()
    torch.save([p.detach() for p in parameters], Path(folder, f"weights-{rank}.pt"))
    dist.destroy_process_group()
    if end == ("abrupt",):
        os._exit(0)


if __name__ == "__main__":
    assert not any(name.startswith("pyddpdiag.record") for name in sys.modules)
    if sys.argv[1] == "loader":
        with_a_loader()
    else:
        mp.spawn(with_a_hook, tuple(sys.argv[2:]), nprocs=2)
