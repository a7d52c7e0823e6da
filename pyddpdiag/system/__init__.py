"""The only place that asks which operating system this is; elsewhere, code asks for what differs."""

from __future__ import annotations

import platform
import sys

#: Linux, Windows: for comparing the systems of several machines.
NAME = platform.system()
#: Paths, shells and services are those of Windows.
WINDOWS = sys.platform == "win32"
#: torch's Windows wheels have no libuv in their TCPStore.
STORE_HAS_LIBUV = sys.platform != "win32"
#: On Windows this would let us take over the port of another program; elsewhere it skips TIME_WAIT only.
REUSE_ADDRESS_IS_SAFE = sys.platform != "win32"
#: No container has numbers of its own for processes.
ONE_NUMBERING_OF_PROCESSES = sys.platform == "win32"
#: Linux ends processes by SIGKILL when memory runs out.
KILLS_WHEN_OUT_OF_MEMORY = sys.platform == "linux"
#: A process can become the parent of those below it whose parents have ended (prctl).
ADOPTS_ORPHANS = sys.platform == "linux"
