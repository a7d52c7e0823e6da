"""What ranks do that average in shared memory, in processes that a fork server makes in milliseconds.

`support.shared_attack` starts them, kills some and asks the others. Nothing here may begin a thread when it is
imported: the server forks with all of it loaded.
"""

import gc
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
import pyddpdiag._native  # loaded in the server, and not in each rank
from support.models import batch, gradient_bytes
from support.own_hosts import only_own_host

Way = Literal["attach", "reducer"]
GROUP_TIMEOUT_S = 120
# Before its third step DDP itself exchanges the order of its buckets, over Gloo.
ESTABLISHED = 3


def _model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(12, 301), nn.Tanh(), nn.Linear(301, 263), nn.Tanh(), nn.Linear(263, 7))


def _steps(rank: int, way: Way, mode: str, recorder: pyddpdiag.Recorder) -> Iterator[list[bytes]]:
    """Trains for ever; each step's gradients as bytes."""
    model = _model()
    if way == "attach":
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
        recorder.attach(ddp, shared_memory=mode)  # type: ignore[arg-type]
    else:
        reducer = pyddpdiag.GradientReducer(
            model.named_parameters(),
            bucket_cap_mb=0.1,
            recorder=recorder,
            shared_memory=mode,  # type: ignore[arg-type]
        )
    for step in recorder.steps(range(10**9)):
        model.zero_grad()
        (ddp if way == "attach" else model)(batch(rank, step, torch.float32)).square().mean().backward()
        if way == "reducer":
            reducer.all_reduce()
        yield gradient_bytes(model)


def train_until_killed(
    rank: int, size: int, folder: str, pipe: Connection, way: Way, hosts: Sequence[int] = ()
) -> None:
    """Says "begun", then trains until an error; sends its text, and when it came on the monotonic clock.

    `hosts`: that of each rank; empty: all are on one.
    """
    _join(rank, size, folder)
    if hosts:
        only_own_host(rank, hosts)
    recorder = pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1)
    begun = 0
    try:
        for _ in _steps(rank, way, "require", recorder):
            begun += 1
            if begun == (ESTABLISHED if way == "attach" else 1):
                pipe.send("begun")
    except RuntimeError as error:
        pipe.send((str(error), time.monotonic()))
    recorder.close()
    _leave()


def same_bits(rank: int, size: int, folder: str, pipe: Connection, steps: int) -> None:
    """Sends a digest of all gradients for each way, over Gloo and in shared memory."""
    _join(rank, size, folder)
    found = {}
    ways: tuple[Way, ...] = ("attach", "reducer")
    for way in ways:
        for mode in ("off", "require"):
            digest = hashlib.sha256()
            with pyddpdiag.Recorder(f"{folder}/{way}-{mode}", capacity_mb=1) as recorder:
                each = _steps(rank, way, mode, recorder)
                for _ in range(steps):
                    digest.update(b"".join(next(each)))
                each.close()  # type: ignore[attr-defined]
            found[way, mode] = digest.hexdigest()
    pipe.send(found)
    _leave()


def _join(rank: int, size: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=Path(folder, "meeting").as_uri(),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
    )


def _leave() -> None:
    # What lives on in cycles holds the process group, whose end waits for its workers.
    gc.collect()
    dist.destroy_process_group()
