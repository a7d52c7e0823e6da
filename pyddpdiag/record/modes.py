"""In which mode modules are trained: one that is left in evaluation mode has no dropout, and keeps no statistics."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from pyddpdiag.model.modes import SURE_LOOKS, Mode
from pyddpdiag.record.module_tree import inside, modules_in, trains
from pyddpdiag.system.handlers import quietly


class Modes:
    """The modes of a rank's modules.

    Args:
        found: called when there is something new to be written down.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._seen: dict[int, Mode] = {}

    def look(self, index: int, owner: weakref.ref[torch.nn.Module] | None, step: int) -> None:
        """Looks at a module with which an optimizer steps.

        Args:
            index: of the module.
            owner: the DDP module around it; None: a reducer has none.
            step: of the trace.
        """
        # Layers of somebody else's class may have another `p`, or none.
        with quietly:
            self._look(index, owner, step)

    def modes(self) -> tuple[Mode, ...]:
        """What was seen."""
        return tuple(self._seen.values())

    def _look(self, index: int, owner: weakref.ref[torch.nn.Module] | None, step: int) -> None:
        ddp = owner() if owner is not None else None
        if ddp is None:
            return
        # What it wraps, as scripts change the mode of either.
        module = inside(ddp)
        seen = self._seen.get(index, Mode(index))
        looks = seen.looks + 1
        if trains(module):
            seen = Mode(index, looks, before=looks)
        elif seen.since_step is None:
            seen = Mode(index, looks, seen.before, step, *layers_without_effect(module))
        else:
            seen = replace(seen, looks=looks)
        self._seen[index] = seen
        if seen.since_looks == SURE_LOOKS:
            self._found()


def layers_without_effect(module: nn.Module) -> tuple[int, int]:
    """Of the layers that are in evaluation mode, how many would drop something and how many would keep statistics."""
    layers = [layer for _, layer in modules_in(module) if not trains(layer)]
    drops = [layer for layer in layers if _probability(layer) > 0.0]
    norms = [layer for layer in layers if isinstance(layer, _NormBase) and layer.track_running_stats]
    return len(drops), len(norms)


def _probability(layer: nn.Module) -> float:
    """That something is dropped in training mode."""
    if isinstance(layer, _DropoutNd):
        return layer.p
    # Between the layers of a recurrent network, of which the last has none behind it.
    if isinstance(layer, nn.RNNBase):
        return layer.dropout if layer.num_layers > 1 else 0.0
    return layer.dropout if isinstance(layer, nn.MultiheadAttention) else 0.0
