"""In which mode a rank's modules were when optimizers stepped with them: a part of its sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SURE_LOOKS: Final = 3
"""So many looks in a row: who changes modes within a step may be met in either."""


@dataclass(frozen=True)
class Mode:
    """A module, looked at in the first steps of optimizers and in every n-th one after these.

    Attributes:
        module: index of the module.
        looks: how often.
        before: how many looks there were up to the last one that found it in training mode.
        since_step: of the trace, since which every look found it in evaluation mode; None: the last one did not.
        dropouts: of its layers, how many drop something in training mode and nothing now.
        norms: how many keep running statistics in training mode and use them now.
    """

    module: int
    looks: int = 0
    before: int = 0
    since_step: int | None = None
    dropouts: int = 0
    norms: int = 0

    @property
    def since_looks(self) -> int:
        """How many looks in a row, up to the last one, found it in evaluation mode."""
        return self.looks - self.before

    @property
    def sound(self) -> bool:
        """Whether its looks agree."""
        return self.before <= self.looks and (self.since_step is None) == (self.before == self.looks)
