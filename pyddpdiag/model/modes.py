"""In which mode a rank's modules were when optimizers stepped with them: a part of its sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyddpdiag.model.untrusted import needed_whole

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


def mode_from_json(entry: Mapping[str, Any]) -> Mode:
    """What can be understood of it.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    looks, before, since = needed_whole(entry["looks"]), needed_whole(entry["before"]), entry["since_step"]
    if before > looks or (since is None) != (before == looks):
        raise ValueError("its looks do not agree")
    return Mode(
        needed_whole(entry["module"]),
        looks,
        before,
        None if since is None else needed_whole(since),
        needed_whole(entry["dropouts"]),
        needed_whole(entry["norms"]),
    )


__all__ = ["SURE_LOOKS", "Mode", "mode_from_json"]
