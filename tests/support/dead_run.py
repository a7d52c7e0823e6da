"""A run whose processes are gone, as written traces with what they noted of their end."""

import json
import socket
from pathlib import Path
from typing import Any

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.report import RunReport
from pyddpdiag.system import processes
from support import own_clock
from support.reported import report_of
from support.trace_writer import MS, RankWriter

STEPS = 12
LAST = STEPS * 100  # ms: when the step after the last whole one begins
GONE = 2**30  # no process has this number
TIMED_OUT = "[/x/gloo/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"
RESET = "[/x/gloo/pair.cc:537] Read error [10.0.0.1]:31886: Connection reset by peer"


class DeadRun:
    """Ranks of this machine that are gone; nothing is noted of their ends until the test says so. Times in ms."""

    def __init__(self, folder: Path, ranks: int = 2) -> None:
        self.folder = folder
        self.writers = [
            RankWriter(
                rank,
                ranks,
                minor=2,
                pid=GONE + rank,
                closed=0,
                monotonic_ns=1,
                heartbeat_ns=LAST * MS,
                clock_name=own_clock.NAME,
                clock_identity=own_clock.IDENTITY,
            )
            for rank in range(ranks)
        ]
        for writer in self.writers:
            writer.sidecar |= {
                "host": socket.gethostname(),
                "process_namespace": processes.namespace(),
                "pid": GONE + writer.rank,
            }
            writer.sound_steps(range(STEPS))

    def lives_until(self, rank: int, at: int) -> None:
        self.writers[rank].header["heartbeat_ns"] = at * MS

    def fails(self, rank: int, at: int, text: str) -> None:
        """The next bucket fails on a rank."""
        ticket = self.writers[rank].bucket(STEPS, LAST * MS, (LAST + 1) * MS, at * MS, flags=1)
        self.writers[rank].error(ticket, text)

    def raises(self, rank: int, at: int, error: str, message: str = "", where: str = "train.py:12") -> None:
        """An exception ends a rank, whose recorder `pyddpdiag run` closes."""
        end = {"error": error, "message": message, "where": where, "at_ns": at * MS}
        self.writers[rank].sidecar["end"] = end
        self.writers[rank].header.update(closed=1, ended=2)
        self.lives_until(rank, at)

    def gets(self, rank: int, at: int, signal: int, text: str = "") -> None:
        """A signal ends a rank."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"rank_{rank}.end").write_text(
            f"{GONE + rank} {signal} {at * MS}\n{text}", encoding="utf-8"
        )
        self.lives_until(rank, at)

    def command(self, **fields: Any) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "command.json").write_text(json.dumps(fields), encoding="utf-8")

    def report(self) -> RunReport:
        return report_of(self.writers, self.folder)

    def first(self) -> Finding:
        return self.report().verdict.findings[0]
