"""How the ranks agree on a run's identity and folder without waiting for one another."""

from __future__ import annotations

import collections
import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch.distributed import distributed_c10d

from pyddpdiag.record import elastic

# How often this process has opened a recorder in a folder: the ranks' n-th recorders of it belong together.
_opened: collections.Counter[str] = collections.Counter()


@dataclass(frozen=True)
class Run:
    """One run: its random 16 bytes and its folder, the same on every rank."""

    run_id: bytes
    folder: str


def agree(folder: str | None) -> Run:
    """Adopts the first rank's proposal, through the process group's own store.

    A compare-and-set never waits, so a rank that opens a recorder alone does not hang.

    Args:
        folder: the folder that the caller wants; None: one named after the time. After a restart by an elastic
            launcher it is a folder below it.
    """
    name = folder if folder is not None else ""
    # A launcher that restarts its ranks may keep its store, with what earlier attempts agreed on.
    attempt = f"{elastic.restarts()}.{dist.get_world_size()}"
    key = f"pyddpdiag/run/{attempt}/{_opened[name]}/{name}"
    _opened[name] += 1
    proposal = {
        "run_id": secrets.token_hex(16),
        "folder": time.strftime("ddptrace-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        if folder is None
        else str(elastic.folder_of_attempt(Path(folder))),
    }
    store = distributed_c10d._get_default_store()
    agreed = json.loads(store.compare_set(key, "", json.dumps(proposal)))
    return Run(bytes.fromhex(agreed["run_id"]), agreed["folder"])
