"""Lines of the script's own code, as "train.py:12": never of torch, Python or other installed packages."""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType

import pyddpdiag


def line_of_error(error: BaseException) -> str:
    """The innermost line of own code that an exception passed; empty: none."""
    trace: TracebackType | None = error.__traceback__
    found = ""
    while trace is not None:
        found = _named(trace.tb_frame.f_code.co_filename, trace.tb_lineno) or found
        trace = trace.tb_next
    return found


def lines_of_frame(frame: FrameType | None) -> tuple[str, ...]:
    """The lines of own code in which a thread is, the outermost first."""
    found = []
    while frame is not None:
        if named := _named(frame.f_code.co_filename, frame.f_lineno):
            found.append(named)
        frame = frame.f_back
    return tuple(reversed(found))


def line_of_frame(frame: FrameType | None) -> str:
    """The innermost of these lines; empty: none."""
    found = lines_of_frame(frame)
    return found[-1] if found else ""


def _named(file: str, line: int | None) -> str:
    name = name_of(file)
    return f"{name}:{line}" if name and line else ""


@cache
def name_of(file: str) -> str:
    """A file of own code, relative to the script's folder; empty: it is not own code."""
    if file.startswith("<"):
        return ""
    path = _absolute(file)
    # As text, which is quicker: many files come up when the first looks are taken.
    if _key(path).startswith(_installed()):
        return ""
    for base in _bases():
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return "/".join(path.parts[-2:])


def _key(path: Path) -> str:
    """Equal for equal paths: on Windows upper and lower case do not differ."""
    return os.path.normcase(path)


@cache
def _installed() -> tuple[str, ...]:
    """What a path of other code begins with."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # Also those of the user, and of the system where a virtual environment sees them.
    folders += [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    found = (*map(Path, folders), Path(pyddpdiag.__file__).parent)
    return tuple(_key(folder).rstrip(os.sep) + os.sep for folder in found)


def _bases() -> tuple[Path, ...]:
    """The script's folder, and the working folder, which may be gone."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    bases = [_absolute(script).parent] if script else []
    with suppress(OSError):
        bases.append(Path.cwd())
    return tuple(bases)


def _absolute(file: str) -> Path:
    """As it is, where the working folder is gone."""
    try:
        return Path(file).absolute()
    except OSError:
        return Path(file)
