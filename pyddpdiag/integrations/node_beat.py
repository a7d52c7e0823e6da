"""The sign of life of one `pyddpdiag run`: a small file beside the traces, renewed while its command runs.

It tells a machine that is gone from ranks that were killed on it: the command outlives its ranks.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyddpdiag.model.fields import to_json
from pyddpdiag.model.node import BEAT_S, NodeNote, note_name
from pyddpdiag.ranks.interrupts import blocked, stop_signals
from pyddpdiag.system.clock import clock_identity, monotonic_ns
from pyddpdiag.system.replaced_files import WITHIN_S, replace

_LEAVE_S = 5.0


class NodeBeat:
    """Renews the note from a thread of its own: a file system that hangs must not keep signals from the command.

    Nothing is written before the ranks have made the folder: without traces there is nothing to add it to.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.node = secrets.token_hex(8)
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pyddpdiag-node", daemon=True)

    def start(self) -> None:
        """Signals stay with the main thread, which passes them on."""
        with blocked(stop_signals()), suppress(RuntimeError):
            self._thread.start()

    def end(self, exit_code: int, signal: str = "", codes: Mapping[str, int] | None = None) -> None:
        """The command has ended; the last note says how, with the `codes` of its ranks.

        Waits for a moment only where the file system hangs.
        """
        self._over.set()
        last = threading.Thread(target=self._last, args=(exit_code, signal, codes or {}), daemon=True)
        with suppress(RuntimeError):
            last.start()
            last.join(_LEAVE_S)

    def _beat(self) -> None:
        while not self._over.is_set():
            self._write(None, "", {})
            self._over.wait(BEAT_S)

    def _last(self, exit_code: int, signal: str, codes: Mapping[str, int]) -> None:
        if self._thread.ident is not None:
            self._thread.join()  # or it would overwrite the last note
        self._write(exit_code, signal, codes, _LEAVE_S)

    def _write(
        self, exit_code: int | None, signal: str, codes: Mapping[str, int], within_s: float = WITHIN_S
    ) -> None:
        """Under another name first: whoever reads it sees all of it, or the one before."""
        note = NodeNote(
            self.node,
            socket.gethostname(),
            clock_identity(),
            os.getpid(),
            monotonic_ns(),
            time.time(),
            exit_code,
            signal,
            codes,
        )
        with suppress(OSError):
            if self._folder.is_dir():
                beside = self._folder / f".{note_name(self.node)}.part"
                beside.write_text(json.dumps(to_json(note)), encoding="utf-8")
                replace(beside, self._folder / note_name(self.node), within_s)
