"""Who calls each collective: the script at one of its lines, or a package that owns the training loop, at one of its.

A stack is told by what differs from the way to the forward pass of a DDP module, which a loop comes by in every step:
where a line of the script lies behind the parting of the ways, the script calls; else the package does in which they
part. torch's, Python's and this package's own frames are nobody's.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Final, NamedTuple

from pyddpdiag.model.callers import CALLERS, Caller
from pyddpdiag.model.frameworks import framework_of
from pyddpdiag.model.lines import Line
from pyddpdiag.record.script_lines import name_of
from pyddpdiag.record.stacks import function_of

_NOBODYS: Final = sys.stdlib_module_names | {"torch", "pyddpdiag"}
_ITERATES: Final = dis.opmap["FOR_ITER"]
_WAYS: Final = 16
"""Different ways to forward passes that are kept: those of several modules, and of passes that accumulate."""

_STACKS: Final = 256
"""So many stacks are known again without being looked at frame by frame."""

_ways: list[tuple[Frame, ...]] = []
_known: dict[
    tuple[int, ...], tuple[tuple[str, str], list[CodeType]]
] = {}  # by functions' ids and instructions


class Frame(NamedTuple):
    """A function, and the place of the instruction that it is at; `module` is its Python module's name."""

    code: CodeType
    last: int
    line: int
    module: str

    @property
    def own(self) -> str:
        """The file of the script's; empty: it is a package's."""
        return name_of(self.code.co_filename)

    @property
    def iterates(self) -> bool:
        """Whether it takes the next thing of a `for`, and calls nothing itself."""
        return self.code.co_code[self.last] == _ITERATES

    def __str__(self) -> str:
        parts = self.module.split(".")
        path = PurePath(self.code.co_filename)
        file = self.own or "/".join(path.parts[-len(parts) - (path.stem == "__init__") :])
        return str(Line(file, self.line, function_of(self.code)))


def frames(frame: FrameType | None) -> tuple[Frame, ...]:
    """The frames of a stack that are somebody's, the outermost first."""
    found = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _NOBODYS or name_of(frame.f_code.co_filename):
            found.append(Frame(frame.f_code, frame.f_lasti, frame.f_lineno, module))
        frame = frame.f_back
    return tuple(reversed(found))


def maker(frame: FrameType | None) -> str:
    """The framework that does something for the script: the last one before its innermost line; empty: none."""
    found = ""
    for each in reversed(frames(frame)):
        if each.own:
            break
        found = framework_of(each.module) or found
    return found


def passes_here(frame: FrameType | None) -> None:
    """A forward pass begins."""
    way = frames(frame)
    if way not in _ways and len(_ways) < _WAYS:
        _ways.append(way)
        _known.clear()


def caller_of(frame: FrameType | None) -> tuple[str, str]:
    """The line that calls a collective, and the package whose line it is; that is empty where it is the script's."""
    codes: list[CodeType] = []
    at: list[int] = []
    one = frame
    while one is not None:
        codes.append(one.f_code)
        at += (id(one.f_code), one.f_lasti)
        one = one.f_back
    key = tuple(at)
    known = _known.get(key)
    if known is None:
        if len(_known) >= _STACKS:
            _known.clear()
        # With the functions, whose ids nobody else has as long as they are there.
        known = _known[key] = _caller(frames(frame)), codes
    return known[0]


def _caller(stack: tuple[Frame, ...]) -> tuple[str, str]:
    behind = stack[max((_common(way, stack) for way in _ways), default=0) :]
    inner = next((at for at in range(len(behind) - 1, -1, -1) if behind[at].own), -1)
    package = next(iter(behind[inner + 1 :]), None)
    if package is not None and (inner < 0 or behind[inner].iterates):
        return str(package), framework_of(package.module) or package.module.partition(".")[0]
    own = next((each for each in reversed(stack) if each.own), None)
    return (str(own), "") if own is not None else ("", "")


def _common(way: Iterable[Frame], stack: Iterable[Frame]) -> int:
    """In how many frames they begin alike: the same function at the same instruction."""
    count = 0
    for one, other in zip(way, stack, strict=False):
        if one[:2] != other[:2]:
            break
        count += 1
    return count


class Callers:
    """The callers of collectives that were seen, up to a number of them."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str, str], list[int]] = {}  # calls, and bytes of the last one

    def note(self, group: str, operation: str, size: int, frame: FrameType | None) -> bool:
        """A call of so many bytes; whether it is of a new caller."""
        key = (group, operation, *caller_of(frame))
        new = key not in self._seen
        if new:
            if len(self._seen) >= CALLERS:
                return False
            self._seen[key] = [0, 0]
        self._seen[key][0] += 1
        self._seen[key][1] = size
        return new

    def seen(self) -> tuple[Caller, ...]:
        """All of them."""
        return tuple(Caller(*key, *counts) for key, counts in list(self._seen.items()))
