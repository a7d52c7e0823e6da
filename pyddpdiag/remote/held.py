"""Cuts a trace to what it holds: of a ring that never came around, the rest of the file is empty."""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyddpdiag.model.run_files import HEADER_BYTES
from pyddpdiag.system import processes
from pyddpdiag.system.clock import clock_identity
from pyddpdiag.system.regular_file import RegularFile

_RECORD_BYTES: Final = 128
_MAGIC: Final = b"DDPTRACE"
_LATE: Final = 256
"""Records more than are counted: another thread of a recorder that is being closed may yet write some."""


def cut(trace: Path, *, is_copy: bool = False) -> None:
    """Cuts a trace that nobody writes any more, where the system allows it; another stays as it is.

    Windows refuses while a process still maps the file, such as one with an operation that has not ended. `is_copy`:
    nobody ever writes it.
    """
    with suppress(OSError, ValueError, AttributeError, struct.error):
        with RegularFile(trace, links="hard") as file:
            header, size = file.read(0, HEADER_BYTES), file.size
        if len(header) < HEADER_BYTES or not header.startswith(_MAGIC):
            return
        order = "<" if header[12:16] == b"\x04\x03\x02\x01" else ">"

        def whole(offset: int) -> int:
            return int(struct.unpack_from(order + "Q", header, offset)[0])

        if not (is_copy or whole(512) or _is_of_nobody(trace, whole(32), header[112:176])):
            return
        held = HEADER_BYTES + _RECORD_BYTES * min(whole(24), whole(256) + _LATE)
        if held < size:
            os.truncate(trace, held)


def _is_of_nobody(trace: Path, pid: int, identity: bytes) -> bool:
    """Whether a trace's process was of this machine, not of a container whose processes are not seen, and is gone."""
    if identity.rstrip(b"\0").decode("utf-8", "replace") != clock_identity():
        return False
    sidecar = json.loads(trace.with_suffix(".json").read_text(encoding="utf-8"))
    return sidecar.get("process_namespace") == processes.namespace() and processes.find(pid) is None
