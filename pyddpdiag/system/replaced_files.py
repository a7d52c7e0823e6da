"""Files that one process replaces as a whole while others read them.

On Windows a file keeps its name for as long as somebody has it open who does not share its deletion: Python's `open`, a
virus scanner, an indexer. So our readers share it, and our writers try again.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

WITHIN_S: Final = 1.0
"""Readers of ours have a file open for some milliseconds, and a virus scanner for some hundred."""

_PAUSE_S: Final = (0.001, 0.05)
"""Before the first try again, and at most: each pause is twice the one before."""

_IN_USE: Final = (5, 32)
"""ERROR_ACCESS_DENIED and ERROR_SHARING_VIOLATION: what Windows says of a file that somebody has open."""

_READ: Final = 0x80000000
_SHARE_ALL: Final = 1 | 2 | 4  # reading, writing, deletion
_OPEN_EXISTING: Final = 3
_NORMAL: Final = 0x80


def replace(source: Path, target: Path, within_s: float = WITHIN_S) -> None:
    """Gives a file that is written the name of another one, if need be again and again.

    Args:
        source: the file.
        target: its name from then on.
        within_s: how long to try where somebody has one of them open; other errors are raised at once.

    Raises:
        OSError: it was not possible; `source` is still there.
    """
    patiently(lambda: source.replace(target), within_s)


def patiently(act: Callable[[], object], within_s: float) -> None:
    """Does something to a file, again and again for this time while the system says that it is in use.

    Raises:
        OSError: the last time's.
    """
    until, pause_s = time.monotonic() + within_s, _PAUSE_S[0]
    while True:
        try:
            act()
        except PermissionError as error:
            left_s = until - time.monotonic()
            if getattr(error, "winerror", None) not in _IN_USE or left_s <= 0.0:
                raise
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _PAUSE_S[1])
        else:
            return


def open_shared(path: Path, flags: int) -> int:
    """A descriptor for reading that lets others replace and remove the file meanwhile.

    Args:
        path: of a file that is there.
        flags: as `os.open` has them. Windows needs none: a handle of its own is not inherited, and never blocks.

    Raises:
        OSError: it cannot be opened.
    """
    library: Any = vars(ctypes).get("WinDLL")
    if library is None:  # no system but Windows keeps a file's name for whoever has it open
        return os.open(path, flags)
    kernel = library("kernel32", use_last_error=True)
    kernel.CreateFileW.restype = ctypes.c_void_p
    kernel.CreateFileW.argtypes = (
        ctypes.c_wchar_p,
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_void_p,
    )
    handle = kernel.CreateFileW(os.fspath(path), _READ, _SHARE_ALL, None, _OPEN_EXISTING, _NORMAL, None)
    if handle == ctypes.c_void_p(-1).value:
        raise vars(ctypes)["WinError"](vars(ctypes)["get_last_error"]())
    runtime: Any = importlib.import_module("msvcrt")
    try:
        return int(runtime.open_osfhandle(handle, os.O_RDONLY))
    except OSError:
        kernel.CloseHandle(ctypes.c_void_p(handle))
        raise
