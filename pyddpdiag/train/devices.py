"""Which device a rank trains on: its own GPU if there are enough, else the CPU."""

from __future__ import annotations

import torch

from pyddpdiag.errors import UsageError
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.train.settings import Device


def choose(wanted: Device, place: Place) -> torch.device:
    """The device of this rank; assumes that one machine's ranks have consecutive numbers.

    Raises:
        UsageError: "cuda" is wanted and there are fewer GPUs than ranks on this machine.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    gpus, ranks = torch.cuda.device_count(), place.local_world_size
    if gpus >= ranks:
        device = torch.device("cuda", place.rank % ranks)
        torch.cuda.set_device(device)
        return device
    if wanted == "cuda":
        raise UsageError(
            f"rank {place.rank}: --device cuda, but torch sees {gpus} GPUs for {ranks} ranks on this machine.",
            hint="use --device cpu, or launch as many ranks as there are GPUs.",
        )
    return torch.device("cpu")
