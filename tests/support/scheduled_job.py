"""A training script that a scheduler's tasks start. It knows nothing of pyddpdiag, and little of the scheduler.

Ranks meet by torch's variables, as all launchers of torch give them. Without those, it takes what SLURM or Open MPI
calls them, as scripts for clusters do. `JOB_STEPS` is how many steps it makes. With
"--killed RANK", that rank is killed in its fourth step.
"""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("JOB_STEPS", "6"))

for ours, theirs in {
    "RANK": ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK"),
    "WORLD_SIZE": ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"),
}.items():
    if ours not in os.environ:
        os.environ[ours] = next(os.environ[name] for name in theirs if name in os.environ)

dist.init_process_group("gloo")
torch.manual_seed(0)
ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(STEPS):
    if step == 3 and sys.argv[1:] == ["--killed", str(dist.get_rank())]:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    ddp(torch.ones(2, 8)).square().mean().backward()
    optimizer.step()
dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} trained", flush=True)
dist.destroy_process_group()
