"""The recorder under Hugging Face Accelerate, by one line. It logs the verdict in the end.

Needs: pip install accelerate. Run: python examples/accelerate_example.py [FOLDER], which starts two ranks by itself, or
torchrun --nproc-per-node 2 examples/accelerate_example.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pyddpdiag.integrations.accelerate import Diagnostics

WORLD_SIZE = 2


def train(folder: str) -> None:
    """Trains in the process group that is up, or in the one of the launcher."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=1)])
    net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 5))
    loader = DataLoader(TensorDataset(torch.randn(512, 10)), batch_size=16, shuffle=True)
    model, optimiser, batches = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), loader)
    Diagnostics(accelerator, folder)
    for step, (x,) in enumerate(batches):
        optimiser.zero_grad()
        loss = (model(x) - x[:, :5].sin()).square().mean()
        accelerator.backward(loss)
        optimiser.step()
        if accelerator.is_main_process and step in (0, len(batches) - 1):
            print(f"step {step:2d}  loss {loss.item():.4f}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        accelerator.save_state(temporary)
    accelerator.end_training()  # logs the verdict, and ends the process group


def rank_main(rank: int, meeting: str, folder: str) -> None:
    """One of two ranks on this machine."""
    # What Accelerate asks for to see that it is distributed; the ranks meet by the file.
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD_SIZE))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", LOCAL_WORLD_SIZE=str(WORLD_SIZE))
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD_SIZE)
    torch.set_num_threads(1)
    train(folder)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else time.strftime("runs/accelerate-%Y%m%d-%H%M%S")
    if "RANK" in os.environ:
        train(folder)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            mp.spawn(rank_main, (Path(temporary, "meeting").as_uri(), folder), nprocs=WORLD_SIZE)
