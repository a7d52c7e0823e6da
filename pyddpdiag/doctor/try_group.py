"""One rank of a real Gloo group: `python -m pyddpdiag.doctor.try_group RANK WORLD ADDRESS PORT TIMEOUT`."""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

from pyddpdiag import system
from pyddpdiag.output import say


def main(rank: int, world_size: int, address: str, port: int, timeout_s: float) -> None:
    """Prints one JSON object; never destroys the group, which may wait for ranks that are gone."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import TCPStore

    begin = time.monotonic()
    error = ""
    try:
        # Others may still load torch; once all are there, connecting takes moments.
        timeout, connecting = timedelta(seconds=timeout_s), timedelta(seconds=timeout_s / 2)
        store = TCPStore(
            address,
            port,
            world_size,
            rank == 0,
            timeout,
            wait_for_workers=False,
            use_libuv=system.STORE_HAS_LIBUV,
        )
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=connecting)
        for size in (1, 1 << 20):
            numbers = torch.full((size,), float(rank))
            dist.all_reduce(numbers)
            if float(numbers[-1]) != world_size * (world_size - 1) / 2:
                error = f"the sum over {world_size} ranks is wrong: {float(numbers[-1])}"
        # The rank that serves the store leaves last.
        store.add("done", 1)
        limit = time.monotonic() + timeout_s
        while rank == 0 and int(store.add("done", 0)) < world_size and time.monotonic() < limit:
            time.sleep(0.02)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    say(json.dumps({"ok": not error, "seconds": round(time.monotonic() - begin, 3), "error": error}))
    sys.stdout.flush()


if __name__ == "__main__":
    import os

    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    os._exit(0)
