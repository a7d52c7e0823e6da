"""Everything that changes while a rank trains: network, optimiser and history."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from pyddpdiag.errors import UsageError
from pyddpdiag.train import checkpoint
from pyddpdiag.train.events import EpochDone
from pyddpdiag.train.rank_session import Session
from pyddpdiag.workloads.workload import Workload


@dataclass
class State:
    """The bare network (not wrapped in DDP), its optimiser, and the epochs that are done."""

    module: nn.Module
    optimiser: torch.optim.Optimizer
    history: list[EpochDone] = field(default_factory=list)


def begin(session: Session, work: Workload, device: torch.device) -> State:
    """A new state from the seed, or that of the checkpoint to continue from; all ranks must call it.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        UsageError: it leaves nothing to train.
    """
    settings = session.settings
    torch.manual_seed(settings.seed)
    module = work.build().to(device)
    optimiser = work.optimiser(module.parameters(), settings.peak_lr(session.place.world_size))
    state = State(module, optimiser)
    if settings.resume is not None:
        path = Path(settings.resume)
        saved = checkpoint.read_shared(path, device)
        checkpoint.check_fit(saved, path, settings.arch, work.classes)
        if len(saved.history) >= settings.epochs and not settings.evaluate:
            raise UsageError(
                f"The checkpoint {path} has {len(saved.history)} epochs, and --epochs is {settings.epochs}: "
                "nothing is left to train.",
                hint="give more --epochs, or --evaluate to test it.",
            )
        module.load_state_dict(saved.model)
        optimiser.load_state_dict(saved.optimiser)
        state.history = list(saved.history)
    return state


def save(session: Session, work: Workload, state: State) -> None:
    """Rank 0 writes the checkpoint, if one is wanted.

    Raises:
        CheckpointError: it cannot be written.
    """
    settings = session.settings
    if settings.checkpoint is None or session.place.rank != 0:
        return
    checkpoint.write(
        Path(settings.checkpoint),
        checkpoint.Checkpoint(
            settings.arch,
            work.classes,
            state.module.state_dict(),
            state.optimiser.state_dict(),
            tuple(state.history),
        ),
    )
