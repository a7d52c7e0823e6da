"""One message of the catalog: how it is recognised, what it means, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from pyddpdiag.messages.shells import Line


class Role(IntEnum):
    """What a message says about the rank that printed it; the lower, the closer to the cause."""

    CAUSE = 0
    """The reason lies in this rank, its settings or the launch."""
    NETWORK = 1
    """This rank cannot reach another one."""
    WAITED = 2
    """This rank waited for another one, which did not come."""
    VICTIM = 3
    """Another rank is gone, which is the cause."""
    SUMMARY = 4
    """Says only that another process failed, or that somebody ended this one."""
    WARNING = 5
    """Often harmless, and printed by runs that work, too."""


@dataclass(frozen=True)
class Message:
    """What torch, Gloo, a launcher or the system says.

    Attributes:
        kind: its name, for programs.
        pattern: recognises it; named groups become facts and may stand in `cause` and `fix` as {name}.
        cause: what is behind it, in one or two sentences.
        fix: what to do about it.
        role: see there.
        lines: the fix as lines to paste; {name} is replaced in these, too.
        windows_fix: replaces `fix` on Windows.
        windows_lines: replaces `lines` on Windows; None for the same ones.
        needs: another pattern that the whole text must hold: it tells apart what looks alike.
        unless: another pattern that the whole text must not hold.
        raised_in: a pattern of files: it counts only as an exception that was raised in one of them, or below.
        torch_only: counts only where torch.distributed or Gloo says it: other libraries have sockets, too.
    """

    kind: str
    pattern: re.Pattern[str]
    cause: str
    fix: str
    role: Role = Role.CAUSE
    lines: tuple[Line, ...] = ()
    windows_fix: str = ""
    windows_lines: tuple[Line, ...] | None = None
    needs: re.Pattern[str] | None = field(default=None)
    unless: re.Pattern[str] | None = field(default=None)
    raised_in: re.Pattern[str] | None = field(default=None)
    torch_only: bool = False


def text_pattern(*alternatives: str) -> re.Pattern[str]:
    """One pattern for several wordings; a space matches any run of blanks, as logs break lines.

    A group `name__2` in a later alternative is the fact `name`.
    """
    parts = [re.sub(r" (?![*?+])", r"\\s+", a).replace(" ", r"\s") for a in alternatives]
    return re.compile("|".join(parts), re.IGNORECASE | re.MULTILINE)
