"""This machine's monotonic clock: its time, and what names it."""

from __future__ import annotations

import ctypes
import importlib
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

# On Windows time.monotonic counts ticks of 16 ms in older Pythons; this one reads the recorder's counter.
monotonic_ns: Final = time.perf_counter_ns
"""Nanoseconds of the clock that recorders on this machine use."""


@cache
def clock_identity() -> str:
    """What the native recorder writes as `clock_identity` on this machine; "" where that cannot be read.

    The twin of `clock_identity()` in csrc/platform, so that traces are read without the native module.
    """
    return linux_identity() or _windows_identity()


@cache
def linux_identity() -> str:
    """The boot and the time namespace; "" where there is no boot id: "/" and a namespace alone name no clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    try:
        space = str(Path("/proc/self/ns/time").readlink())
    except OSError:
        space = ""
    return f"{boot}/{''.join(c for c in space if c in '0123456789')}" if boot else ""


def _windows_identity() -> str:
    """The machine's id from the registry and its name; "" on other systems."""
    try:
        registry: Any = importlib.import_module("winreg")
        flags = registry.KEY_READ | registry.KEY_WOW64_64KEY
        with registry.OpenKey(
            registry.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography", 0, flags
        ) as key:
            machine, _ = registry.QueryValueEx(key, "MachineGuid")
        kernel: Any = vars(ctypes)["windll"].kernel32
        size = ctypes.c_uint32(64)
        name = ctypes.create_string_buffer(size.value)
        if not kernel.GetComputerNameA(name, ctypes.byref(size)):
            return ""
    except (ImportError, OSError, KeyError, AttributeError):
        return ""
    return f"{machine}/{name.value.decode('utf-8', 'replace')}"
