"""How the ranks agree on a run's identity and folder without waiting for one another."""

from __future__ import annotations

import collections
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch.distributed import distributed_c10d

from pyddpdiag.model.attempts import attempt_folder
from pyddpdiag.record import elastic
from pyddpdiag.remote import secret

# How often this process has opened a recorder of a name: the ranks' n-th recorders of it belong together.
_opened: collections.Counter[str] = collections.Counter()
_name: str | None = None


@dataclass(frozen=True)
class Run:
    """One run: its random 16 bytes, the same on every rank, and the folder for this rank's trace."""

    run_id: bytes
    folder: str


@contextmanager
def named(name: str) -> Iterator[None]:
    """A recorder that is opened in the block belongs to those of the same name on other ranks, whatever their folders.

    On machines that share no folder, each may have a name of its own.
    """
    global _name
    before, _name = _name, name
    try:
        yield
    finally:
        _name = before


def agree(folder: str | None) -> Run:
    """Takes the first rank's proposal, through the process group's own store.

    A compare-and-set never waits, so a rank that opens a recorder alone does not hang. Recorders belong together
    whose folders have the same last part: what is before it may differ between machines.

    Args:
        folder: the folder that the caller wants; None: one named after the time. After a restart by an elastic
            launcher it is a folder below it.
    """
    name = _name or (Path(folder).name if folder is not None else "")
    # A launcher that restarts its ranks may keep its store, with what earlier attempts agreed on.
    launch = f"{elastic.restarts()}.{dist.get_world_size()}"
    key = f"pyddpdiag/run/{launch}/{_opened[name]}/{name}"
    _opened[name] += 1
    proposal = {
        "run_id": secrets.token_hex(16),
        "folder": time.strftime("ddptrace-%Y%m%d-%H%M%S-") + secrets.token_hex(2),
        "attempt": 0 if folder is None else elastic.attempt_in(Path(folder)),
    }
    store = distributed_c10d._get_default_store()
    if secret.is_wanted():
        mine = secrets.token_hex(secret.BYTES)
        secret.hand_over(store.compare_set(f"pyddpdiag/gather/{launch}", "", mine), elastic.restarts())
    agreed = json.loads(store.compare_set(key, "", json.dumps(proposal)))
    wanted = Path(agreed["folder"] if folder is None else folder)
    return Run(bytes.fromhex(agreed["run_id"]), str(attempt_folder(wanted, agreed["attempt"])))
