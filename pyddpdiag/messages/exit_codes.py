"""Exit codes of processes: in words, and as this process can pass them on."""

from __future__ import annotations

import signal
from typing import Final

# The values of NTSTATUS with which Windows ends a process, and those that it leaves in its place.
_WINDOWS: Final = {
    0x80000003: "breakpoint",
    0xC0000005: "access violation",
    0xC0000006: "in-page error",
    0xC0000017: "out of memory",
    0xC000001D: "illegal instruction",
    0xC0000022: "access denied",
    0xC000007B: "DLL of another architecture",
    0xC0000094: "integer division by zero",
    0xC00000FD: "stack overflow",
    0xC000012D: "commit limit",
    0xC0000135: "DLL not found",
    0xC0000139: "entry point not found",
    0xC000013A: "Ctrl-C",
    0xC0000142: "DLL initialization failed",
    0xC0000374: "heap corruption",
    0xC0000409: "failed security check or abort",
    0xC0000420: "assertion failure",
    0xC06D007E: "DLL not found at its first call",
    0xC06D007F: "function of a DLL not found at its first call",
    0xE06D7363: "uncaught C++ exception",
    0xFFFFFFFF: "-1",
}
_FIRST_NTSTATUS: Final = 0x80000000


def shown(code: int) -> str:
    """An exit code for people: 7, or 0xC0000005 (access violation)."""
    if code < _FIRST_NTSTATUS:
        return str(code)
    name = _WINDOWS.get(code)
    return f"0x{code:08X}" + (f" ({name})" if name else "")


def ended(code: int) -> str:
    """What became of a process with this code, of which a negative one is minus the signal that ended it."""
    if code >= 0:
        return f"ended with exit code {shown(code)}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


def to_pass_on(code: int) -> int:
    """What to give `sys.exit`, so that this process ends with the same code as another one.

    Windows has codes of 32 bits without a sign, and Python takes them as a C long, which has one: 2**31 and above would
    all become 0xFFFFFFFF.
    """
    return code - 2**32 if code >= _FIRST_NTSTATUS else code
