"""One rank that starts by `pyddpdiag.init_process_group`, as a script; prints one line of JSON.

RANK WORLD URL SECONDS HOW: `sums` averages something, `dies` is killed once it has met, `stalls` never connects.
"""

import json
import os
import sys
import time
from datetime import timedelta


def main(rank: int, world_size: int, url: str, seconds: float, how: str) -> None:
    import torch
    import torch.distributed as dist

    import pyddpdiag

    if how == "stalls":
        # Meets the others, and then does not go on to Gloo.
        dist.init_process_group = lambda *_, **__: time.sleep(1000)
    begin = time.monotonic()
    try:
        pyddpdiag.init_process_group(
            "gloo", url, world_size=world_size, rank=rank, start_timeout=timedelta(seconds=seconds)
        )
        if how == "dies":
            os.kill(os.getpid(), 9)
        number = torch.ones(1)
        dist.all_reduce(number)
        answer = {"sum": float(number)}
        dist.barrier()
    except pyddpdiag.errors.PyddpdiagError as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    print(json.dumps({**answer, "seconds": time.monotonic() - begin}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5])
