"""A training script that a scheduler's tasks start. It knows nothing of pyddpdiag, and little of the scheduler.

Ranks meet by torch's variables, as all launchers of torch give them. Without those, it takes what SLURM or Open MPI
calls them, as scripts for clusters do. `JOB_STEPS` is how many steps it makes, `JOB_FORKS` how many ranks it makes of
itself once torch is loaded: a machine's ranks, of which `GROUP_RANK` is the number. With "--killed RANK", that rank is
killed in its fourth step.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("JOB_STEPS", "6"))
_NAMES = {
    "RANK": ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX"),
    "WORLD_SIZE": ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"),
}


def train() -> None:
    for ours, theirs in _NAMES.items():
        if ours not in os.environ:
            os.environ[ours] = next(os.environ[name] for name in theirs if name in os.environ)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        if step == 3 and sys.argv[1:] == ["--killed", str(rank)]:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        ddp(torch.rand(2, 8, generator=data)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    print(f"rank {rank} of {dist.get_world_size()} trained", flush=True)
    dist.destroy_process_group()


def one_of(local: int, count: int) -> None:
    os.environ["RANK"] = str(int(os.environ["GROUP_RANK"]) * count + local)
    train()


if __name__ == "__main__":
    forks = int(os.environ.get("JOB_FORKS", "0"))
    if forks:
        mp.start_processes(one_of, (forks,), nprocs=forks, start_method="fork")
    else:
        train()
