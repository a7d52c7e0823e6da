"""Reads a run again and again while it is written: each look reads only what is new since the last one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.header import Header, parse_header
from pyddpdiag.trace.layout import HEADER_BYTES, RECORD, Records, to_native
from pyddpdiag.trace.now import glance
from pyddpdiag.trace.reader import RankTrace, Read, assemble, opened, sort_in
from pyddpdiag.trace.rows import is_in_flight
from pyddpdiag.trace.run import Run, open_run
from pyddpdiag.trace.sidecar import SidecarReader
from pyddpdiag.trace.slots import PublishedRecords, tickets_of
from pyddpdiag.trace.table import Tables, joined, take

SidecarRead = tuple[Sidecar, tuple[str, ...]]


class RunFollower:
    """Looks at a folder's newest records, rank by rank. Follows a run that is replaced by another, or restarted.

    `keep`: how many of each rank's newest records are kept.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep
        self._files: dict[Path, _File] = {}

    def look(self, visit: Callable[[RankTrace], None] | None = None) -> Run:
        """The run as it is now; see `open_run`, whose errors this raises."""
        run = open_run(choose_attempt(self.folder)[0], visit, self._read)
        there = {trace.path for trace in run.ranks}
        self._files = {path: file for path, file in self._files.items() if path in there}
        return run

    def _read(self, path: Path, sidecars: SidecarReader, tables: Tables | None) -> RankTrace:
        return self._files.setdefault(path, _File(path, self._keep)).look(sidecars, tables)


class _File:
    """One rank's newest records, in this machine's byte order and sorted by ticket."""

    def __init__(self, path: Path, keep: int) -> None:
        self._path = path
        self._keep = keep
        self._whose: tuple[str, int] | None = None
        self._sidecar_read: tuple[tuple[int, int, int], SidecarRead] | None = None
        self._forget()

    def _forget(self) -> None:
        self._window: Records = np.empty(0, RECORD)
        self._seen = self._pending = 0

    def look(self, sidecars: SidecarReader, tables: Tables | None) -> RankTrace:
        """Read what is new, and what had not ended when it was read last."""
        with opened(self._path) as file:
            header = parse_header(file.read(0, HEADER_BYTES), self._path)
            process = glance(header)
            # A restarted run has a new identity; one that was cut short and begun again has fewer tickets.
            if self._whose != (header.run_id, header.pid) or header.tickets < self._seen:
                self._whose = header.run_id, header.pid
                self._forget()
            since = max(self._pending, header.tickets - self._keep, 0)
            published = PublishedRecords(file, header, since) if since else PublishedRecords(file, header)
            self._take(published, header, since)
        tables = tables or Tables()
        tables.clear()
        unknown, unsound, _ = sort_in([self._window], tables)
        first = max(0, header.tickets - self._keep)
        # What earlier looks did not find is not looked for again.
        expected = min(self._keep, header.capacity, header.tickets)
        absent = max(0, expected - len(self._window) - published.torn - header.dropped)
        read = Read(published, unknown, unsound, first, absent)
        return assemble(self._path, header, process, tables, read, self._sidecar(sidecars))

    def _take(self, published: PublishedRecords, header: Header, since: int) -> None:
        """Put the records from ticket `since` on into the window, in place of what it had of them."""
        pieces = published if header.native else map(to_native, published)
        found = [take(piece, np.arange(len(piece))) for piece in pieces]
        read = joined(found)
        tickets = tickets_of(read)
        read = take(read, np.flatnonzero((tickets >= since) & (tickets < header.tickets)))
        old = tickets_of(self._window)
        first = max(0, header.tickets - self._keep)
        kept = take(self._window, np.flatnonzero((old >= first) & (old < since)))
        window = joined([kept, read])
        self._window = take(window, np.argsort(tickets_of(window), kind="stable"))
        tickets = tickets_of(self._window)
        # What was being written is looked for once more; a ticket that was never used is not waited for.
        new = np.arange(max(self._seen, since), header.tickets, dtype=np.uint64)
        missing = new[~np.isin(new, tickets)]
        again = np.concatenate([missing, tickets[is_in_flight(self._window)]])
        self._pending = int(again.min(initial=header.tickets))
        self._seen = header.tickets

    def _sidecar(self, sidecars: SidecarReader) -> SidecarRead:
        """The sidecar, which is read again only when it has changed."""
        path = self._path.with_suffix(".json")
        try:
            status = path.stat()
            key = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            return sidecars.read(path)
        if self._sidecar_read is None or self._sidecar_read[0] != key:
            self._sidecar_read = key, sidecars.read(path)
        return self._sidecar_read[1]
