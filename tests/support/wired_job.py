"""One rank of a small training over links.

python -m support.wired_job RANK WORLD FOLDER URL INTERFACES STEPS [TIMEOUT_S]
"""

import os
import sys
from datetime import timedelta
from pathlib import Path


def main(
    rank: int, world_size: int, folder: str, url: str, interfaces: str, steps: int, timeout_s: int = 1800
) -> None:
    """Trains a network of 3 MB in buckets of 1 MB and records it; little computing, so that the links decide.

    A file "trains" in the current folder says that it has come through some steps.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = interfaces
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import pyddpdiag

    dist.init_process_group(
        "gloo", init_method=url, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s)
    )
    torch.manual_seed(0)
    ddp = DistributedDataParallel(
        torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(3))), bucket_cap_mb=1
    )
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        for step, batch in enumerate(recorder.steps([torch.ones(4, 512)] * steps)):
            ddp(batch).mean().backward()
            ddp.zero_grad()
            if step == 10:
                Path("trains").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5], *map(int, sys.argv[6:]))
