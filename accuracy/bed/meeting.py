"""How the ranks of a run meet: when all have loaded what they need, through a file of the run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from bed.protocol import ask


def meet(spec: dict[str, Any], rank: int, ranks: int) -> None:
    """Says that this rank has loaded, waits for the runner's leave, and makes the process group."""
    ask("loaded")
    dist.init_process_group(
        "gloo",
        init_method=Path(spec["meeting"]).as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=spec["timeout_s"]),
    )
