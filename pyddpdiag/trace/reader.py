"""One rank's trace: a consistent snapshot of a file that may still be written."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.errors import TraceError
from pyddpdiag.trace.header import MAX_TIME_NS, Header, parse_header
from pyddpdiag.trace.layout import (
    HEADER_BYTES,
    RECORD_BYTES,
    TIMES_USED,
    BucketTime,
    CollectiveTime,
    Kind,
    Records,
    State,
    record_dtype,
    to_native,
)
from pyddpdiag.trace.sidecar import Sidecar, read_sidecar

RETRIES: Final = 4
CHUNK: Final = 2**18

ORDERED: Final = {
    Kind.BUCKET: tuple(
        (start, BucketTime.ENDED) for start in (BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED)
    ),
    Kind.COLLECTIVE: ((CollectiveTime.STARTED, CollectiveTime.ENDED),),
}
"""Pairs of times of which the second, where it was seen, cannot be the earlier one."""


@dataclass(frozen=True, eq=False)
class RankTrace:
    """One rank's records by kind, each sorted by ticket, in this machine's byte order.

    `torn` counts records that were being written, `malformed` those whose content cannot be right, and
    `unknown` those of a kind that this version doesn't know; none of them is in `by_kind`. `warnings` are
    pairs of a file's name and what is wrong with it.
    """

    path: Path
    header: Header
    sidecar: Sidecar
    by_kind: Mapping[Kind, Records]
    torn: int
    malformed: int
    unknown: int
    warnings: tuple[tuple[str, str], ...]

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.header.rank

    def of_kind(self, kind: Kind) -> Records:
        """This rank's records of one kind, sorted by ticket."""
        return self.by_kind[kind]

    def __len__(self) -> int:
        """Number of records."""
        return sum(len(records) for records in self.by_kind.values())


def tickets_of(records: Records) -> npt.NDArray[np.uint64]:
    """The ticket in each publication word; uint64, one per record."""
    return np.asarray((records["word"] >> np.uint64(2)) - np.uint64(1))


def is_in_flight(records: Records) -> npt.NDArray[np.bool_]:
    """Whether each record was open (a start without an end) when it was read."""
    return np.asarray((records["word"] & np.uint64(3)) == State.IN_FLIGHT)


def read_trace(path: Path) -> RankTrace:
    """Read one trace file. It may still be written by a live process.

    Raises:
        TraceError: the file cannot be read or is no trace; the message names it.
    """
    try:
        # A pipe or device with a trace's name would block or never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise TraceError(f"{path}: not a file.", hint="Only files may be named rank_<N>.ddptrace.")
        with path.open("rb") as file:
            header = parse_header(file.read(HEADER_BYTES), path)
            size = file.seek(0, 2)
        slots, notes = _map(path, header, size)
        records, torn, astray = _read_slots(slots, header.capacity)
    except OSError as error:
        raise TraceError(
            f"{path}: cannot be read: {error.strerror or error}.", hint="Check the file and its permissions."
        ) from error
    if not header.native:
        records = to_native(records)
    by_kind, known, sound = _split(records)
    unknown, malformed = len(records) - known, astray + known - sound
    sidecar, said = read_sidecar(path.with_suffix(".json"))
    warnings = [(path.name, text) for text in notes] + [
        (path.with_suffix(".json").name, text) for text in said
    ]
    for amount, text in (
        (torn, "records were being written and are not counted."),
        (malformed, "records cannot be right and were left out; the file is damaged."),
        (unknown, "records are of a kind that this version doesn't know."),
        (header.overwritten, "older records were overwritten; a larger capacity keeps more."),
        (header.dropped, "events were lost: no slot was free."),
    ):
        if amount:
            warnings.append((path.name, f"{amount} {text}"))
    return RankTrace(path, header, sidecar, by_kind, torn, malformed, unknown, tuple(warnings))


def _map(path: Path, header: Header, size: int) -> tuple[Records, list[str]]:
    """The used slots as a read-only memory map, in the file's byte order."""
    there = (size - HEADER_BYTES) // RECORD_BYTES
    warnings = []
    if there < header.capacity:
        warnings.append(f"truncated: it has {there} of {header.capacity} slots; what is there is used.")
    used = min(header.capacity, header.tickets, there)
    dtype = record_dtype(header.byte_order)
    if used <= 0:
        return np.empty(0, dtype), warnings
    return np.memmap(path, dtype, "r", HEADER_BYTES, (used,)), warnings


def _read_slots(slots: Records, capacity: int) -> tuple[Records, int, int]:
    """Copy what is published, sorted by ticket; also the number of torn records and of those out of place."""
    parts: list[Records] = []
    torn = astray = 0
    # In pieces, so that memory grows with what was published and not with what the header claims.
    for first in range(0, len(slots), CHUNK):
        part, more_torn, more_astray = _snapshot(slots[first : first + CHUNK], first, capacity)
        parts.append(part)
        torn, astray = torn + more_torn, astray + more_astray
    records = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, slots.dtype)
    tickets = tickets_of(records)
    if not (tickets[1:] > tickets[:-1]).all():
        records = records[np.argsort(tickets, kind="stable")]
    return records, torn, astray


def _snapshot(slots: Records, first: int, capacity: int) -> tuple[Records, int, int]:
    """Copy what is published in the slots from `first` on: word, copy, word again.

    Returns:
        the copies, the number of torn records, and of those whose ticket belongs elsewhere.

    NumPy has no acquire loads. On x86 the copy cannot overtake the first word; on weakly ordered processors
    the test of ticket and plausible content after it is the net under this one.
    """
    words = np.array(slots["word"], np.uint64)
    state = words & np.uint64(3)
    torn = int(np.count_nonzero(state == State.WRITING))
    wanted = np.flatnonzero(state >= State.IN_FLIGHT)
    copies: list[Records] = []
    places: list[npt.NDArray[np.int64]] = []
    for _ in range(RETRIES):
        if not len(wanted):
            break
        before = words[wanted]
        # A whole ring is one straight copy; picking slots costs twice as much.
        copy = np.array(slots) if len(wanted) == len(slots) else np.asarray(slots[wanted])
        words = np.array(slots["word"], np.uint64)
        same = (before == words[wanted]) & (before == copy["word"])
        copies.append(copy if same.all() else copy[same])
        places.append(wanted[same])
        wanted = wanted[~same]
        writing = (words[wanted] & np.uint64(3)) < State.IN_FLIGHT
        torn += int(np.count_nonzero(writing))
        wanted = wanted[~writing]
    torn += len(wanted)
    if not copies:
        return np.empty(0, slots.dtype), torn, 0
    records = copies[0] if len(copies) == 1 else np.concatenate(copies)
    tickets = tickets_of(records)
    right = (tickets % np.uint64(capacity) == np.concatenate(places) + first) & (tickets < np.uint64(2**62))
    astray = int(len(right) - np.count_nonzero(right))
    return (records[right] if astray else records), torn, astray


def _split(records: Records) -> tuple[dict[Kind, Records], int, int]:
    """Records by kind, without those that cannot be right; how many are of known kinds and how many sound."""
    kinds = records["kind"].copy()
    by_kind: dict[Kind, Records] = {}
    known = sound = 0
    for kind in Kind:
        part = records[kinds == kind]
        good = _plausible(part["times"][:, : TIMES_USED.get(kind, 0)], ORDERED.get(kind, ()))
        by_kind[kind] = part if good.all() else part[good]
        known, sound = known + len(part), sound + len(by_kind[kind])
    return by_kind, known, sound


def _plausible(times: npt.NDArray[np.int64], ordered: Iterable[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Which records can be right: all times within bounds, no end before its start."""
    # Seen as unsigned, a negative time is a huge one.
    good = np.asarray((times.view(np.uint64) <= MAX_TIME_NS).all(axis=1))
    for start, end in ordered:
        first, last = times[:, start], times[:, end]
        good &= (last >= first) | (last == 0)
    return good
