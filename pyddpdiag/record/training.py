"""What is seen of a training besides its gradients: optimizers, loaders, evaluations, modes, `no_sync`, the script's
own reductions, what it saves, what its forward passes raise."""

from __future__ import annotations

import weakref

import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.model.training import Training
from pyddpdiag.record.averaged_again import AveragedAgain
from pyddpdiag.record.ddp_modules import Description
from pyddpdiag.record.evaluations import Evaluations
from pyddpdiag.record.loaders import Loaders
from pyddpdiag.record.modes import Modes
from pyddpdiag.record.optimizers import Optimizers
from pyddpdiag.record.pass_looks import PassLooks
from pyddpdiag.record.raises import Raises
from pyddpdiag.record.reduced import Reduced
from pyddpdiag.record.reductions import ReductionWatch
from pyddpdiag.record.saves import Saves


class TrainingWatch:
    """Collects it for the sidecar, until it is closed. `due` says that the sidecar lacks something of it."""

    def __init__(self, core: _native.Recorder) -> None:
        self.due = False
        self.loaders = Loaders(self._found)
        self.evaluations = Evaluations(self._found)
        self.saves = Saves(self._found)
        self.raises = Raises(self._found)
        self._modes = Modes(self._found)
        self._again = AveragedAgain()
        self._optimizers = Optimizers(core, self._found, self._modes, self._again)
        self._reductions = ReductionWatch(core, self._found, self._again)
        self._looks: dict[int, PassLooks] = {}

    def add(self, module: _native.Module, description: Description) -> None:
        """A module is recorded from now on."""
        self._looks[module.index] = description.looks
        if not description.reduced_by:
            parameters = [weakref.ref(one) for one in description.parameters]
            sizes = [one.nbytes for one in description.parameters]
            smallest = sizes.index(min(sizes)) if sizes else 0
            ranks = _ranks_of(description.group)
            reduced = Reduced(
                module, parameters, description.owner, description.looks, ranks, smallest=smallest
            )
            reduced.passes = _native.quick_passes(module)
            self._optimizers.add(reduced)

    def look_at_all(self) -> None:
        """Looks at the parameters of optimizers while no module is recorded, too."""
        self._optimizers.looks_at_all = True

    def facts(self) -> Training:
        """What was seen; it is `due` no more."""
        self.due = False
        looks = list(self._looks.items())  # another thread may ask
        return Training(
            self._optimizers.stepped(),
            self._optimizers.unreduced(),
            self.loaders.loaded(),
            self.evaluations.evaluated(),
            {index: (one.looked, one.inside) for index, one in looks if one.looked},
            {index: (one.looked, one.fresh) for index, one in looks if one.looked},
            self._optimizers.marked(),
            self._reductions.reductions(),
            self.saves.saves(),
            self._modes.modes(),
            {index: marks for index, one in looks if (marks := one.batches.marks())},
            self._again.averaged_again(),
            self._reductions.callers(),
            {index: one.clearing for index, one in looks if one.clearing.steps},
            {index: values for index, one in looks if (values := one.batches.values())},
            self.raises.raised(),
        )

    def close(self) -> None:
        """Watch no more."""
        self._optimizers.close()
        self._reductions.close()

    def _found(self) -> None:
        self.due = True


def _ranks_of(group: dist.ProcessGroup) -> frozenset[int]:
    """Its members; none for a group that torch.distributed does not know."""
    try:
        return frozenset(dist.get_process_group_ranks(group))
    except (KeyError, RuntimeError, ValueError):
        return frozenset()
