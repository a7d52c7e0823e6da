"""Gradients that the script averages by hand though DDP has averaged them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch

from pyddpdiag.model.averaged_again import AveragedAgain as Facts
from pyddpdiag.record.reduced import Reduced
from pyddpdiag.record.script_lines import line_of_frame

_NOTHING: Final = (Facts(0), 0)
_NO_GRADIENTS: Final[tuple[int, dict[int, int]]] = (-1, {})


class AveragedAgain:
    """Looks at what the script reduces between a pass that DDP reduced and the optimizer's step."""

    def __init__(self) -> None:
        self.due = True
        """Whether the next step is one that is looked at."""
        self._modules: list[Reduced] = []
        self._open: dict[
            Reduced, tuple[Facts, int]
        ] = {}  # what was reduced since the last step, and of how many values
        self._gradients: dict[Reduced, tuple[int, dict[int, int]]] = {}  # since that pass: address and values
        self._seen: dict[int, Facts] = {}

    def add(self, module: Reduced) -> None:
        """A module is recorded from now on."""
        self._modules.append(module)

    def reduces(self, tensors: Sequence[torch.Tensor], op: str, ranks: Sequence[int]) -> None:
        """The script reduces these tensors over these ranks."""
        # Within a backward pass it is a hook of DDP's, which averages for the first time.
        if not self.due or torch._C._current_graph_task_id() != -1:
            return
        values = sum(one.numel() for one in tensors)
        here = threading.get_ident()
        for module in self._modules:
            # While one thread drops a gradient, as zero_grad does, another that reads it crashes in torch.
            if module.thread != here:
                continue
            if module.native.passes == module.stepped_at or not module.ranks.issuperset(ranks):
                continue
            ddp = module.owner() if module.owner is not None else None
            # A hook of the script's own may leave it to the script, as torch's noop_hook does.
            if ddp is None or ddp._comm_hooks:
                continue
            gradients = self._gradients_of(module)
            # One by one, or all of them in one tensor.
            if values == sum(gradients.values()) or all(
                gradients.get(one.data_ptr()) == one.numel() for one in tensors
            ):
                before, so_far = self._open.get(module, _NOTHING)
                size = sum(one.nbytes for one in tensors)
                facts = replace(before, calls=before.calls + 1, bytes=before.bytes + size, op=op)
                where = before.where or line_of_frame(sys._getframe())
                self._open[module] = replace(facts, where=where), so_far + values

    def steps(self, module: Reduced) -> None:
        """An optimizer steps with a module."""
        opened, values = self._open.pop(module, _NOTHING)
        gradients = self._gradients.pop(module, _NO_GRADIENTS)[1]
        if not self.due or not module.thread or module.native.passes == module.stepped_at:
            return
        seen = self._seen.get(module.native.index, Facts(0))
        if gradients and values >= sum(gradients.values()):
            seen = replace(opened, looks=seen.looks, times=seen.times + 1)
        self._seen[module.native.index] = replace(seen, looks=seen.looks + 1)

    def averaged_again(self) -> dict[int, Facts]:
        """What was seen, by module."""
        return {index: one for index, one in self._seen.copy().items() if one.times}

    def _gradients_of(self, module: Reduced) -> dict[int, int]:
        passes, known = self._gradients.get(module, _NO_GRADIENTS)
        if passes != module.native.passes:
            living = (one for one in (ref() for ref in module.parameters) if one is not None)
            gradients = (one.grad for one in living if one.grad is not None)
            known = {one.data_ptr(): one.numel() for one in gradients if one.layout == torch.strided}
            self._gradients[module] = module.native.passes, known
        return known
