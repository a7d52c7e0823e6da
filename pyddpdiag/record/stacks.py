"""A thread's Python stack as the trace keeps it: lines of own code, and the name of what the innermost one called."""

from __future__ import annotations

import dis
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import CodeType
from typing import Any, Final

from pyddpdiag import _native
from pyddpdiag.model.lines import COLLECTED, DEPTH_LIMIT, SAMPLES_LIMIT, STACKS_LIMIT, Line, Stack
from pyddpdiag.record.script_lines import name_of

_COMPREHENSIONS: Final = ("<listcomp>", "<dictcomp>", "<setcomp>")

_COLLECTS: Final = -1

CODE_LIMIT: Final = 20_000
"""Bytes of a function in which the name of a call is looked for."""


def looks_at_main_thread() -> _native.StackLooks:
    """Looks at the main thread's stack; they keep as much as a reader takes."""
    # What other code is gets known now, and not in the first look.
    name_of(__file__)
    return _native.StackLooks(
        threading.main_thread().ident or 0,
        name_of,
        samples=SAMPLES_LIMIT,
        stacks=STACKS_LIMIT,
        depth=DEPTH_LIMIT,
    )


def named(taken: Sequence[int], looks: _native.StackLooks) -> Stack:
    """A stack of these looks in words; its numbers: csrc/python/stack_looks.hpp. The empty one is that of no sample."""
    if not taken:
        return Stack()
    on_disk, foreign = bool(taken[0]), taken[1]
    places = [(looks.code(taken[at]), taken[at + 1], taken[at + 2]) for at in range(2, len(taken), 3)]
    lines = _in_functions(
        Line(name_of(code.co_filename), line, function_of(code)) for code, line, _ in reversed(places)
    )
    if foreign == _COLLECTS:
        return Stack(lines, COLLECTED, on_disk)
    if foreign:
        called_there = f"{looks.module(foreign)}.{function_of(looks.code(foreign))}"
        return Stack(lines, called_there.lstrip("."), on_disk)
    call = ""
    if places:
        # Names are a help, never a reason to fail.
        with suppress(Exception):
            call = called(places[0][0], places[0][2])
    return Stack(lines, call, on_disk)


def _in_functions(lines: Iterable[Line]) -> tuple[Line, ...]:
    """With what runs in a comprehension as a line of its function, which it is from Python 3.12 on (PEP 709)."""
    found: list[Line] = []
    for line in lines:
        outer = found[-1] if found else None
        if outer is not None and line.function in _COMPREHENSIONS and line.file == outer.file:
            found[-1] = Line(line.file, line.number, outer.function)
        else:
            found.append(line)
    return tuple(found)


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


def function_of(code: CodeType) -> str:
    """Its name, with its class if it has one; not the function around it, but of a generator expression that one."""
    name: str = getattr(code, "co_qualname", code.co_name)
    name = name.removesuffix(".<locals>.<genexpr>")
    return name.rpartition("<locals>.")[2]
