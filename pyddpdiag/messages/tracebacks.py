"""Tracebacks in the text of a log: what was raised, where, and whether torch.distributed raised it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

HEAD: Final = "Traceback (most recent call last)"
_SEPARATOR = re.compile(r"[/\\]")
_FRAME = re.compile(r'^\s*(?:\|\s*)?File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
# In the boxes of rich, which Accelerate and others print.
_BOXED = re.compile(r"^\u2502\s+(?P<file>\S.*?\.py):(?P<line>\d+) in\b")
_RAISED = re.compile(
    r"^(?P<kind>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Iteration|Timeout)|gaierror))"
    r"(?::(?: (?P<text>.*))?)?$"
)
# Ray prints the traceback of a worker below such a line.
_OF_WORKER = re.compile(r"\bRayTaskError\((?P<kind>\w+)\): ")
# No rank ends by these: a thread beside the main one, an object that is thrown away.
_ASIDE = re.compile(r"^Exception (?:in thread |(?P<ignored>ignored ))")
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
        until: where its message ends, which may go on in further lines.
        line: as it was printed.
        frames: the innermost one last.
        handled: another exception took its place.
        aside: it ended nothing, or a thread beside the main one, and the rank went on.
    """

    kind: str
    start: int
    until: int
    line: str
    frames: tuple[Frame, ...]
    handled: bool = False
    aside: bool = False

    @property
    def place(self) -> str:
        """The innermost line of the script's own code; "" if there is none."""
        own = [frame for frame in self.frames if not _OF_OTHERS.search(frame.file)]
        return own[-1].name if own else ""


def is_raised(line: str) -> bool:
    """Whether a line is that of an exception, as it stands below its traceback."""
    return _RAISED.match(line) is not None


def find(text: str, last: str = "") -> list[Raised]:
    """All exceptions with a traceback in a text, in its order. The head of the first one may be cut off.

    `last` is the last line of the log: a rank says no more after an exception there.
    """
    found: list[Raised] = []
    frames: list[Frame] = []
    inside = False
    aside: re.Match[str] | None = None
    before = ""
    worker: Raised | None = None  # whose traceback is not there, or has not come yet
    position = 0
    for whole in text.splitlines(keepends=True):
        line = _PREFIX.sub("", whole.rstrip("\r\n"))
        end = position + len(whole.rstrip("\r\n"))
        raised = _RAISED.match(line) if inside or (frames and not found) else None
        of_worker = _OF_WORKER.search(line)
        if of_worker is not None:
            worker = Raised(of_worker.group("kind"), position, end, line, tuple(frames))
        if HEAD in line or of_worker is not None:
            inside, frames = True, []
            aside = _ASIDE.match(before) or (aside if _CHAINED.search(before) else None)
        elif frame := _FRAME.match(line) or _BOXED.match(line):
            frames.append(Frame(frame.group("file"), int(frame.group("line"))))
        elif raised is not None:
            kind = raised.group("kind").rpartition(".")[2]
            until = _end_of_message(text, end) if not raised.group("text") or line.endswith(":") else end
            goes_on = aside is not None and (aside.group("ignored") or line != last)
            found.append(Raised(kind, position, until, line, tuple(frames), aside=bool(goes_on)))
            inside, frames, worker = False, [], None
        elif found and _CHAINED.search(line):
            one = found.pop()
            found.append(replace(one, handled=True))
        position += len(whole)
        before = line if line.strip() else before
    return [*found, worker] if worker is not None else found


def _end_of_message(text: str, begin: int) -> int:
    """Where the message ends that begins after this place: before the next traceback."""
    following = text.find(HEAD, begin)
    return len(text) if following < 0 else following


def passed(files: re.Pattern[str], start: int, raised: Sequence[Raised]) -> bool:
    """Whether the exception whose line begins here came through one of these files."""
    owner = next((one for one in raised if one.start == start), None)
    return owner is not None and any(files.search(frame.file) for frame in owner.frames)


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
