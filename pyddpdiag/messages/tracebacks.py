"""Tracebacks in the text of a log: what was raised, where, and whether torch.distributed raised it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

HEAD: Final = "Traceback (most recent call last)"
_SEPARATOR = re.compile(r"[/\\]")
_FRAME = re.compile(r'^\s*(?:\|\s*)?File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_RAISED = re.compile(
    r"^(?P<kind>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Iteration|Timeout)|gaierror))"
    r"(?::(?: (?P<text>.*))?)?$"
)
_CHAINED = re.compile(r"another exception occurred:|was the direct cause of the following")
_OF_OTHERS = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python\d|[/\\]python[\d.]*[/\\]lib[/\\]|^<", re.IGNORECASE
)
_TORCH_FILE = re.compile(r"torch[/\\](?:distributed|nn[/\\]parallel|_C)|gloo[/\\]", re.IGNORECASE)
_TORCH_WORDS = re.compile(
    r"gloo|c10d|\[[^\[\]]*\.(?:cc|cpp|h):\d+\]|torch[./\\]distributed|TCPStore|FileStore|ProcessGroup|SocketImpl"
    r"|\b(?:recv|send)(?:Value|Bytes)|(?:client|server) socket has"
    r"|Dist(?:Network|Store|Backend)?Error",
    re.IGNORECASE,
)
# What torch's C++ raises; Python's own sockets raise other classes.
_CXX = ("RuntimeError", "DistNetworkError", "DistStoreError", "DistBackendError", "DistError")
_BARE = re.compile(r"(?:(?P<kind>[\w.]*\w(?:Error|Exception|error)): )?(?:\[(?:Errno|WinError) \d+\] )?")
_PREFIX = re.compile(r"^\[(?:default|rank)\d+\]:? ?", re.IGNORECASE)


@dataclass(frozen=True)
class Frame:
    """A line of code in a traceback."""

    file: str
    line: int

    @property
    def name(self) -> str:
        """As people call it: train.py:12."""
        return f"{_SEPARATOR.split(self.file)[-1]}:{self.line}"


@dataclass(frozen=True)
class Raised:
    """An exception with the traceback that was printed for it.

    Attributes:
        kind: its class, without the module.
        start: where its line begins in the text.
        end: where that line ends.
        until: where its message ends, which may go on in further lines.
        line: as it was printed.
        frames: the innermost one last.
        handled: another exception took its place.
    """

    kind: str
    start: int
    end: int
    until: int
    line: str
    frames: tuple[Frame, ...]
    handled: bool = False

    @property
    def place(self) -> str:
        """The innermost line of the script's own code; "" if there is none."""
        own = [frame for frame in self.frames if not _OF_OTHERS.search(frame.file)]
        return own[-1].name if own else ""


def find(text: str) -> list[Raised]:
    """All exceptions with a traceback in a text, in its order."""
    found: list[Raised] = []
    frames: list[Frame] = []
    inside = False
    position = 0
    for whole in text.splitlines(keepends=True):
        line = _PREFIX.sub("", whole.rstrip("\r\n"))
        raised = _RAISED.match(line) if inside else None
        if HEAD in line:
            inside, frames = True, []
        elif frame := _FRAME.match(line):
            frames.append(Frame(frame.group("file"), int(frame.group("line"))))
        elif raised is not None:
            kind = raised.group("kind").rpartition(".")[2]
            end = position + len(whole.rstrip("\r\n"))
            until = _end_of_message(text, end) if not raised.group("text") or line.endswith(":") else end
            found.append(Raised(kind, position, end, until, line, tuple(frames)))
            inside = False
        elif found and _CHAINED.search(line):
            one = found.pop()
            found.append(replace(one, handled=True))
        position += len(whole)
    return found


def _end_of_message(text: str, begin: int) -> int:
    """Where the message ends that begins after this place: before the next traceback."""
    following = text.find(HEAD, begin)
    return len(text) if following < 0 else following


def of_torch(text: str, span: tuple[int, int], match_start: int, raised: Sequence[Raised]) -> bool:
    """Whether a line comes from torch.distributed or Gloo, and not from another library that has sockets, too.

    Args:
        text: it stands in this one.
        span: where the line is.
        match_start: of the words that were recognised in it.
        raised: what `find` finds in the text.
    """
    start = span[0]
    line = text[slice(*span)]
    if _TORCH_WORDS.search(line):
        return True
    owner = next((one for one in reversed(raised) if one.start <= start), None)
    if owner is None or owner.start != start or not owner.frames:
        # Nothing says where it comes from: it stands alone, or it is a remark of some program.
        before = _BARE.fullmatch(_PREFIX.sub("", line[: max(0, match_start - start)]))
        if before is None:
            return False
        kind = before.group("kind")
        if kind is None:
            return text.lstrip().startswith(line.lstrip()) and HEAD not in text
        return kind.rpartition(".")[2] in _CXX or HEAD not in text
    return owner.kind in _CXX or _TORCH_FILE.search(owner.frames[-1].file) is not None
