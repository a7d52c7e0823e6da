"""Exceptions that left the forward pass of a module: a script may catch one, and skip the pass that others make."""

from __future__ import annotations

from collections.abc import Callable

from pyddpdiag.model.raised import FORWARDS, Raised
from pyddpdiag.record.script_lines import line_of_error


class Raises:
    """Those of one rank.

    Args:
        found: called when there is something new to be written down.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._seen: list[Raised] = []

    def note(self, error: BaseException, step: int) -> None:
        """One has left a forward pass of this step."""
        if len(self._seen) < FORWARDS:
            self._seen.append(Raised(step, type(error).__name__, line_of_error(error)))
            self._found()

    def raised(self) -> tuple[Raised, ...]:
        """What was seen."""
        return tuple(self._seen)
