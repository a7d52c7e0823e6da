"""Exceptions that left a forward pass: a part of a rank's sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FORWARDS: Final = 16
"""That are kept, the first ones."""


@dataclass(frozen=True)
class Raised:
    """One that the script caught, unless it ended the process.

    Attributes:
        step: that was open then.
        error: its class.
        where: the innermost line of the script that it passed; empty: not known.
    """

    step: int
    error: str
    where: str = ""

    @property
    def sound(self) -> bool:
        """Whether it says what was raised."""
        return self.step >= 0 and self.error != ""
