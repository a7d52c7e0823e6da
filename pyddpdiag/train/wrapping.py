"""What is applied to the DDP module of a training, and to the process of its rank."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.cures import processes
from pyddpdiag.cures.ddp_arguments import option
from pyddpdiag.errors import UsageError
from pyddpdiag.ranks.cores import threads_per_rank
from pyddpdiag.ranks.session import Note
from pyddpdiag.train.rank_session import Session


def ddp_arguments(session: Session) -> dict[str, Any]:
    """What DistributedDataParallel gets by the settings.

    Raises:
        UsageError: this torch lacks an argument.
    """
    wanted = session.settings.ddp_arguments
    known = inspect.signature(DistributedDataParallel).parameters
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"DistributedDataParallel of torch {torch.__version__} has no {name}.",
                hint=f"leave {option(name)} out.",
            )
    return wanted


def use_cores(session: Session) -> int:
    """Gives this rank its threads and cores; how many threads it has. All ranks call it together."""
    settings, place = session.settings, session.place
    threads = settings.threads or threads_per_rank(place.local_world_size)
    torch.set_num_threads(threads)
    if settings.pin_ranks:
        group = dist.group.WORLD
        assert group is not None
        why = processes.pin(group)
        if why and place.rank == 0:
            session.tell(Note(why))
    return threads
