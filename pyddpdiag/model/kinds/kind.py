"""What a kind of finding is: everything about it that is not the looking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyddpdiag.model.findings import Confidence, Finding, Severity
from pyddpdiag.model.words import ranks

Family = Literal["failures", "values", "ranks", "network", "settings", "devices"]
"""The class of trouble that findings are about."""

Explained = Literal["", "exposed", "late"]
"""What findings explain: the time in which all ranks wait for buckets after backward, or, where they name a rank, the
time in which the others wait for it. Two findings that explain the same cannot cost more than there is of it."""

Part = Literal[
    "", "data_wait", "compute", "phase", "core", "other", "late", "communication", "own", "life", "gradients"
]
"""The part of the time that findings are about, which the page's picture marks.

The first ones are parts of a step (`analyse/anatomy.py`). `own`: that part of its own time of which the named rank has
more than the others. `life`: time outside of the steps, in the picture of the ranks' lives. `gradients`: no time, but
values, in the picture of the gradients' norms.
"""

End = Literal["", "ended", "stuck", "failed"]
"""What findings say of whether the run goes on. `ended`: nobody goes on after that, even if some rank still does for a
moment. `stuck`: it stands still now. `failed`: an operation failed, or will, as ranks do different things."""


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        name: as in `Finding.kind`.
        severities: that its findings may have.
        short: what it is, in some words, for a sentence that names several. `{ranks}` is the rank that the finding
            names, or `many`; `{links}` the link, or the links of that rank, or all; `{when}` the
            steps, if not all; `{where}` the line.
        many: whom `{ranks}` means where no rank is named.
        explains: the time that its findings share with others.
        part: of the time; without one, that which follows from `explains`.
        environment: it is how this machine is, and every run there has it: it comes behind what is the run's own.
        at_once: it comes all at once, so its cost per step says little.
        slows_all: what it costs is not limited by how late the named rank is.
        explained_by: kinds that say why: where an earlier check found one, and not as a note, it is not looked for.
        leads_to: kinds of what follows from it: they come behind it, and are of low confidence as causes.
        leads_from: how sure it must be for that.
        unless_led: words of its messages that hold only where no other error led to it.
        end: what it means for the run.
        cure: words for "so much could be saved ...", with the fields of `short`.
        saves: the options of `pyddpdiag run` that cure it, each with the number of the evidence that says what it
            saves (ms per step). Without one, `saved_ms` says that, or else the cost.
        family: the class of trouble; that of the table's part which it is in.
    """

    name: str
    severities: tuple[Severity, ...] = ("warning",)
    short: str = ""
    many: str = "the ranks"
    explains: Explained = ""
    part: Part = ""
    environment: bool = False
    at_once: bool = False
    slows_all: bool = False
    explained_by: tuple[str, ...] = ()
    leads_to: tuple[str, ...] = ()
    leads_from: Confidence = "high"
    unless_led: str = ""
    end: End = ""
    cure: str = ""
    saves: Mapping[str, str] = field(default_factory=dict)
    family: Family = "settings"

    @property
    def marks(self) -> Part:
        """The part that the page's picture marks."""
        if self.part or not self.explains:
            return self.part
        return "communication" if self.explains == "exposed" else "own"

    def in_short(self, finding: Finding) -> str:
        """What the finding says, without its numbers; begins in lower case."""
        return self._filled(self.short or self.name.replace("_", " "), finding)

    def cured(self, finding: Finding) -> str:
        """The words for its cure."""
        return self._filled(self.cure, finding) if self.cure else f"without this: {self.in_short(finding)}"

    def savings(self, finding: Finding) -> dict[str, float]:
        """What a step would take less with each cure, in ms, by its option; by "" where it is no option's to save."""
        numbers = {"saved_ms": finding.cost_ms, **finding.evidence}
        found = {option: numbers.get(name) for option, name in (self.saves or {"": "saved_ms"}).items()}
        return {option: float(value) for option, value in found.items() if isinstance(value, (int, float))}

    def _filled(self, words: str, finding: Finding) -> str:
        rank, peer = finding.rank, finding.peer
        links = "the links between hosts"
        if rank is not None:
            links = f"the links of rank {rank}" if peer is None else f"the link of ranks {rank} and {peer}"
        return words.format(
            ranks=self.many if rank is None else ranks([rank]),
            links=links,
            when=_when(finding),
            where=finding.where or "a line of the script",
        )


def _when(finding: Finding) -> str:
    """The steps of an error, and of what is in a part of the run only, of which the evidence counts the stretches."""
    since, until = finding.since_step, finding.until_step
    if since is None or (finding.severity != "error" and "stretches" not in finding.evidence):
        return ""
    if finding.severity == "error":
        return f" in step {since}"
    return f" from step {since} on" if until is None else f" in steps {since} to {until}"
