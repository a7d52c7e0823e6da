"""Which msvcp140.dll this Python uses on Windows, where several may lie about, and of which version it is."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path
from typing import Any, Final

NAME: Final = "msvcp140.dll"
_SIGNATURE = struct.pack("<I", 0xFEEF04BD)
_LONGEST_PATH = 32768


def beside_python() -> Path:
    """The folder of python.exe, also within a virtual environment: Windows looks there first."""
    return Path(sys.base_prefix)


def runtime_file() -> Path | None:
    """The file that is loaded already, else the first where Windows would look: beside python.exe, in System32."""
    system32 = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"
    places = (loaded(NAME), beside_python() / NAME, system32 / NAME)
    return next((place for place in places if place is not None and place.is_file()), None)


def loaded(name: str) -> Path | None:
    """The file of a library that this process has loaded; None if it has not, and on other systems."""
    library = vars(ctypes).get("WinDLL")
    if library is None:
        return None
    kernel: Any = library("kernel32")
    kernel.GetModuleHandleW.restype = ctypes.c_void_p
    handle = kernel.GetModuleHandleW(name)
    path = ctypes.create_unicode_buffer(_LONGEST_PATH)
    if not handle or not kernel.GetModuleFileNameW(ctypes.c_void_p(handle), path, _LONGEST_PATH):
        return None
    return Path(path.value)


def file_version(path: Path) -> tuple[int, int, int, int] | None:
    """The version in a Windows library's resources; None if there is none.

    Raises:
        OSError: the file cannot be read.
    """
    content = path.read_bytes()
    at = content.find(_SIGNATURE)
    if at < 0 or len(content) < at + 16:
        return None
    _, _, high, low = struct.unpack_from("<IIII", content, at)
    return high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF
