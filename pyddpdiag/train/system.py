"""The only place that asks which operating system this is; elsewhere, code asks for what differs."""

from __future__ import annotations

import sys
from pathlib import Path

#: torch's Windows wheels have no libuv in their TCPStore.
STORE_HAS_LIBUV = sys.platform != "win32"
#: On Windows this would let us take over the port of another program; elsewhere it skips TIME_WAIT only.
REUSE_ADDRESS_IS_SAFE = sys.platform != "win32"
#: Linux ends processes by SIGKILL when memory runs out.
KILLS_WHEN_OUT_OF_MEMORY = sys.platform == "linux"


def process_namespace() -> str:
    """A name that differs between containers of one machine that cannot see each other's processes, or ""."""
    if sys.platform != "linux":
        return ""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
