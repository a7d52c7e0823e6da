"""Of what gradients the steps of an optimizer consisted: a part of a rank's sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pyddpdiag.model.untrusted import needed_whole


@dataclass(frozen=True)
class Clearing:
    """Of what gradients an optimizer's steps consisted, as far as each pass before a step was looked at.

    Attributes:
        steps: such steps.
        kept: those none of whose passes began without gradients: what the step before had used was in them, too.
        lost: those all of whose passes began without, though some were not to be reduced: only the last one counted.
        dropped: those before which a pass was reduced whose gradients were cleared.
    """

    steps: int = 0
    kept: int = 0
    lost: int = 0
    dropped: int = 0


def clearing_from_json(entry: Mapping[str, Any]) -> Clearing:
    """What can be understood of it.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    return Clearing(*(needed_whole(entry[one.name]) for one in fields(Clearing)))


__all__ = ["Clearing", "clearing_from_json"]
