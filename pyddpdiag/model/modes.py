"""In which mode a rank's modules were when optimizers stepped with them: a part of its sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyddpdiag.model.untrusted import needed_whole


@dataclass(frozen=True)
class Mode:
    """A module, looked at in the first steps of optimizers and in every n-th one after these.

    Attributes:
        module: index of the module.
        looks: how often.
        since_step: of the trace, since which every look found it in evaluation mode; None: the last one did not.
        since_looks: how many looks those are.
        before: how many looks there were up to the last one that found it in training mode.
        dropouts: of its layers, how many drop something in training mode and nothing now.
        norms: how many keep running statistics in training mode and use them now.
    """

    module: int
    looks: int = 0
    since_step: int | None = None
    since_looks: int = 0
    before: int = 0
    dropouts: int = 0
    norms: int = 0


def mode_to_json(one: Mode) -> dict[str, Any]:
    """The entry of a sidecar."""
    return asdict(one)


def mode_from_json(entry: Mapping[str, Any]) -> Mode:
    """What can be understood of it.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    since = entry["since_step"]
    return Mode(
        needed_whole(entry["module"]),
        needed_whole(entry["looks"]),
        None if since is None else needed_whole(since),
        *(needed_whole(entry[key]) for key in ("since_looks", "before", "dropouts", "norms")),
    )


__all__ = ["Mode", "mode_from_json", "mode_to_json"]
