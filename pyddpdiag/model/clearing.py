"""Of what gradients the steps of an optimizer consisted: a part of a rank's sidecar."""

from __future__ import annotations

from dataclasses import dataclass


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
