"""A job that torchrun restarts: in its first attempt, rank 1 ends in the middle."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

STEPS = 6
ENDS_IN = 3


def main() -> None:
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
    with pyddpdiag.Recorder(sys.argv[1]) as recorder:
        recorder.attach(ddp)
        for step in range(STEPS):
            ddp(torch.ones(2, 4)).sum().backward()
            if step == ENDS_IN and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os._exit(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
