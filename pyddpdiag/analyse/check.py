"""What a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.findings import Severity

Severities = tuple[Severity, ...]

Basis = Literal["all ranks", "waits", "own times", "records"]
"""What findings rest on, and so what is left of them where traces are missing or damaged (`analyse/partial.py`).

`records`: on what single records or processes say; they stand whatever else is missing. `own times`: on what each rank
does by itself; they stand where other ranks have no trace. `waits`: on ranks that wait, for which a rank without a
trace may be the reason; such a finding becomes an observation of low confidence. `all ranks`: on everything; then
there is not a finding at all.
"""

Family = Literal["ranks", "network", "failures", "values", "devices", "settings"]
"""The class of trouble that findings are about."""

Explained = Literal["", "exposed", "late"]
"""What findings explain: the time in which all ranks wait for buckets after backward, or, where they name a rank, the
time in which the others wait for it. Two findings that explain the same cannot cost more than there is of it."""

Role = Literal["", "layout", "fault", "ended", "interrupted", "stuck", "differs", "failed", "mistake"]
"""What findings mean for others.

`layout`: gradients are put into buckets badly, as calculated from the transfers, which every `fault` of the network
slows. `ended`, `interrupted`: nobody goes on after that, even if some rank still does for a moment. `stuck`: the run
stands still now. `differs`: ranks do different things, so that others fail or wait, and the one that Gloo hits may be
innocent. `failed`: an operation failed. `mistake`: lines of the script, or settings, cost time for nothing, or
could be beside training; another line takes that away.
"""


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
        rests_on: what its findings need; a check that does not say so needs the whole traces of all ranks.
        family, explains, role: of its findings; see there.
    """

    kinds: Mapping[str, Severities]
    look: Callable[[RunView], Iterable[Finding]]
    unless: tuple[str, ...] = ()
    per_group: bool = False
    rests_on: Basis = "all ranks"
    family: Family = field(kw_only=True)
    explains: Explained = ""
    role: Role = ""
