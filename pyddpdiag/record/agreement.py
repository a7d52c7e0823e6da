"""How the ranks agree on a run's identity and folder without waiting for one another."""

from __future__ import annotations

import collections
import json
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch.distributed import distributed_c10d

from pyddpdiag.model.attempts import attempt_folder, numbered
from pyddpdiag.output import say
from pyddpdiag.record import elastic
from pyddpdiag.record.destination import local_name
from pyddpdiag.remote import secret
from pyddpdiag.remote.place import is_url

# How often this process has opened a recorder of a name: the ranks' n-th recorders of it belong together.
_opened: collections.Counter[str] = collections.Counter()
_name: str | None = None
_exactly = False


@dataclass(frozen=True)
class Run:
    """One run: its random 16 bytes, the same on every rank, and the folder for this rank's trace."""

    run_id: bytes
    folder: str


@contextmanager
def named(name: str, *, exactly: bool = False) -> Iterator[None]:
    """A recorder that is opened in the block belongs to those of the same name on other ranks, whatever their folders.

    On machines that share no folder, each may have a name of its own. `exactly`: it records into the folder that it is
    given, where whoever started the ranks looks for it, even if a run is there.
    """
    global _name, _exactly
    before = _name, _exactly
    _name, _exactly = name, exactly
    try:
        yield
    finally:
        _name, _exactly = before


def discarded(name: str) -> None:
    """The last recorder of a name is gone: the next one takes its place among those of the other ranks."""
    _opened[name] -= 1


def agree(folder: str | Path | None, *, overwrite: bool) -> Run:
    """Takes the first rank's proposal, through the process group's own store.

    A compare-and-set never waits, so a rank that opens a recorder alone does not hang. Recorders belong together
    whose folders have the same last part: what is before it may differ between machines. No rank has made its trace
    when the first one looks whether the folder holds a run.

    Args:
        folder: what the caller wants, or a URL; None: one named after the time. If it holds a run, the next free name
            beside it. After a restart by an elastic launcher it is a folder below it.
        overwrite: to replace what the folder holds, so not beside it.
    """
    local = local_name(folder)
    name = _name or (Path(local).name if local is not None else "")
    # A launcher that restarts its ranks may keep its store, with what earlier attempts agreed on.
    launch = f"{elastic.restarts()}.{dist.get_world_size()}"
    key = f"pyddpdiag/run/{launch}/{_opened[name]}/{name}"
    _opened[name] += 1
    number, attempt = 1, 0
    if local is not None:
        # What stands at a URL is not known here.
        beside = not (overwrite or _exactly or is_url(str(folder)))
        number, attempt = (
            elastic.place_beside(Path(local)) if beside else (1, elastic.attempt_in(Path(local)))
        )
    proposal = {
        "run_id": secrets.token_hex(16),
        "folder": time.strftime("ddptrace-%Y%m%d-%H%M%S-") + secrets.token_hex(2),
        "number": number,
        "attempt": attempt,
    }
    store = distributed_c10d._get_default_store()
    if secret.is_wanted():
        mine = secrets.token_hex(secret.BYTES)
        secret.hand_over(store.compare_set(f"pyddpdiag/gather/{launch}", "", mine), elastic.restarts())
    agreed = json.loads(store.compare_set(key, "", json.dumps(proposal)))
    wanted = numbered(Path(agreed["folder"] if local is None else local), agreed["number"])
    if agreed["number"] > 1 and dist.get_rank() == 0:
        say(f"pyddpdiag: '{local}' holds an earlier run; this one is recorded into '{wanted}'.", sys.stderr)
    return Run(bytes.fromhex(agreed["run_id"]), str(attempt_folder(wanted, agreed["attempt"])))
