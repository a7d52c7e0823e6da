"""A thread's Python stack as the trace keeps it: lines of own code, and the name of what the innermost one called."""

from __future__ import annotations

import dis
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, Final

from pyddpdiag.frames import main_frame
from pyddpdiag.model.lines import DEPTH_LIMIT, Line, Stack
from pyddpdiag.record.script_lines import name_of

WALK_LIMIT: Final = 200
"""Frames of one stack that are looked at, so that a deep recursion costs no more."""

CODE_LIMIT: Final = 20_000
"""Bytes of a function in which the name of a call is looked for."""

CODES_LIMIT: Final = 10_000
"""Functions that are remembered: a program may make new ones for ever."""

Sample = tuple[int, ...]
"""A stack in numbers, quick to compare: 1 if the thread waits for a disk, else 0; the innermost function if it is no
own code, else 0; then for each own frame, the innermost first, its function, line and, of the first one, last
instruction."""

# By id, which stays theirs as long as they are here; a code object's own hash looks at all that is in it.
_codes: dict[int, CodeType] = {}
_modules: dict[int, str] = {}


def sample(on_disk: bool = False) -> Sample | None:
    """Where the main thread is; None: it has no frame. Quick: names are made later, once for each stack.

    `on_disk`: whether it waits for a disk there.
    """
    frame = main_frame()
    if frame is None:
        return None
    found = [int(on_disk), _foreign(frame)]
    for _ in range(WALK_LIMIT):
        if frame is None or len(found) > 1 + 3 * DEPTH_LIMIT:
            break
        code = frame.f_code
        if name_of(code.co_filename) and _remember(code):
            # Of the others the instruction is not asked for: one stack must not become many.
            found += (id(code), frame.f_lineno or 0, -1 if len(found) > 2 else frame.f_lasti)
        frame = frame.f_back
    return tuple(found)


def named(taken: Sample) -> Stack:
    """The stack in words."""
    on_disk, foreign = bool(taken[0]), taken[1]
    places = [(_codes[taken[at]], taken[at + 1], taken[at + 2]) for at in range(2, len(taken), 3)]
    lines = tuple(
        Line(name_of(code.co_filename), line, _function(code)) for code, line, _ in reversed(places)
    )
    if foreign:
        return Stack(lines, f"{_modules[foreign]}.{_function(_codes[foreign])}".lstrip("."), on_disk)
    call = ""
    if places:
        # Names are a help, never a reason to fail.
        with suppress(Exception):
            call = called(places[0][0], places[0][2])
    return Stack(lines, call, on_disk)


def called(code: CodeType, last: int) -> str:
    """What a function calls at its last instruction, as "time.sleep"; empty: nothing, or it cannot be known.

    A function of C has no frame of its own. The names stand in the instructions, which know since Python 3.11 from
    which part of the line each was made: those of the called object begin where the call does.
    """
    if len(code.co_code) > CODE_LIMIT or not hasattr(code, "co_positions"):
        return ""
    # Of Python 3.11 and later: "positions" of an instruction.
    instructions: list[Any] = list(dis.get_instructions(code))
    call = next((each for each in instructions if each.offset == last), None)
    if call is None or "CALL" not in call.opname or call.positions is None:
        return ""
    begin, end = _span(call.positions)
    parts: dict[tuple[int, int], str] = {}
    for each in instructions:
        if each.positions is None or each.offset >= last:
            continue
        since, until = _span(each.positions)
        if (
            since == begin
            and until < end
            and each.opname.startswith("LOAD_")
            and isinstance(each.argval, str)
        ):
            parts[until] = each.argval
    return ".".join(parts[at] for at in sorted(parts))


def _span(at: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Line and column of the begin and the end."""
    return (at.lineno or 0, at.col_offset or 0), (at.end_lineno or 0, at.end_col_offset or 0)


def _function(code: CodeType) -> str:
    """Its name, with its class if it has one; not the function around it."""
    name: str = getattr(code, "co_qualname", code.co_name)
    return name.rpartition("<locals>.")[2]


def _foreign(frame: FrameType) -> int:
    """The number of the frame's function if that is no own code; else 0."""
    code = frame.f_code
    if name_of(code.co_filename) or not _remember(code):
        return 0
    if id(code) not in _modules:
        module = frame.f_globals.get("__name__")
        _modules[id(code)] = module if isinstance(module, str) else ""
    return id(code)


def _remember(code: CodeType) -> bool:
    """Keeps a function, so that its number stays its own; False: there are too many."""
    return id(code) in _codes or (len(_codes) < CODES_LIMIT and _codes.setdefault(id(code), code) is code)


__all__ = ["Sample", "called", "named", "sample"]
