"""What a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.findings import Severity

Severities = tuple[Severity, ...]


@dataclass(frozen=True)
class Check:
    """Looks for one cause, or for a few that it can distinguish in one look.

    Attributes:
        kinds: the kinds of its findings, each with its possible severities.
        look: yields what it finds. Works on the view's tables, prints nothing, and never fails because of a
            trace's content.
        unless: kinds that make this check superfluous: it is skipped if an earlier check found any of them, and not
            only as a note.
        per_group: it compares ranks' times, so it looks at ranks that meet, and at each set of them where a run has
            several.
    """

    kinds: Mapping[str, Severities]
    look: Callable[[RunView], Iterable[Finding]]
    unless: tuple[str, ...] = ()
    per_group: bool = False
