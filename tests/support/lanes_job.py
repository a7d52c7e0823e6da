"""One rank whose buckets take turns over one interface, over two in turn, and over two at once.

python -m support.lanes_job RANK WORLD URL SPEC.json; rank 0 prints the seconds of each way and size as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any


def main(rank: int, world_size: int, url: str, spec: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Seconds of a bucket in each round by way and size in bytes; a warm-up round is left out.

    `spec`: `ways` (name: {"interfaces": for the process group, "lanes": of attach}), `sizes`, `rounds`, `folder`;
    `first`: so many buckets over lanes come before the rounds, so that their division has been tried by then; and
    `bytes`: a round sums the same bucket in a row until it has sent this much, so that the burst which a shaped link
    lets through after a rest counts for little.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["GLOO_SOCKET_IFNAME"] = next(iter(spec["ways"].values()))["interfaces"]
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import pyddpdiag

    class OneBucket(torch.nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.values = torch.nn.Parameter(torch.zeros(size // 4))

        def forward(self, factors: torch.Tensor) -> torch.Tensor:
            return (self.values * factors).sum()

    timeout = timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=world_size, timeout=timeout)
    taken: dict[str, dict[str, list[float]]] = {}
    modules = {}
    with pyddpdiag.Recorder(Path(spec["folder"]) / "trace", lines=False) as recorder:
        for name, way in spec["ways"].items():
            os.environ["GLOO_SOCKET_IFNAME"] = way["interfaces"]
            group = dist.new_group(backend="gloo", timeout=timeout)
            for size in spec["sizes"]:
                ddp = DistributedDataParallel(OneBucket(size), process_group=group, bucket_cap_mb=1024)
                recorder.attach(ddp, lanes=way.get("lanes", ()))
                modules[name, str(size)] = ddp
        ones = {str(size): torch.ones(size // 4) for size in spec["sizes"]}
        for (name, size), ddp in modules.items():
            for _ in range(spec["first"] if "lanes" in spec["ways"][name] else 0):
                ddp.zero_grad()
                ddp(ones[size]).backward()
        for turn in range(spec["rounds"] + 1):
            # In another order each time, the same on both ranks: a shaped link lets a burst through after a rest.
            order = list(modules.items())
            random.Random(turn).shuffle(order)
            for (name, size), ddp in order:
                seconds = 0.0
                times = max(1, spec["bytes"] // int(size))
                dist.barrier()
                for _ in range(times):
                    ddp.zero_grad()
                    loss = ddp(ones[size])
                    begin = time.perf_counter()
                    loss.backward()
                    seconds += time.perf_counter() - begin
                if turn > 0:
                    taken.setdefault(name, {}).setdefault(size, []).append(seconds / times)
    dist.barrier()
    dist.destroy_process_group()
    return taken


if __name__ == "__main__":
    orders = json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))
    result = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], orders)
    if sys.argv[1] == "0":
        print(json.dumps(result))
