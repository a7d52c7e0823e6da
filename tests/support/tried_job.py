"""A training script that knows nothing of pyddpdiag, for trials.

Arguments: what bounds it ("communication" or "compute"), how many steps at most, and a folder for its weights ("-": it
saves none).
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH = {"communication": 512, "compute": 256}
ROWS = {"communication": 4, "compute": 2048}


def main(bound: str, steps: int, folder: str) -> None:
    """Trains."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    width = WIDTH[bound]
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    ddp = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(ROWS[bound], width, generator=generator)).square().mean().backward()
        optimizer.step()
    if folder != "-":
        weights = [parameter.detach() for parameter in ddp.parameters()]
        torch.save(weights, Path(folder, f"weights-{dist.get_rank()}.pt"))
    print(f"rank {dist.get_rank()} trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
