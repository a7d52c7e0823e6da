"""The published records of a trace file that a live process may be writing, and anybody may cut short.

This reads the file and never maps it: a mapping of a file that is truncated meanwhile kills its reader
(SIGBUS).

A slot is one sequence lock (docs/trace-format.md): word, copy, word again. Here every piece of the file is
read into memory three times, each time with separate system calls:

1. the words, which show what was published before the second reading began; 2. the copy; 3. the words again:
where they are the same in all three, nobody has claimed the slot since the first, as the
   word of a slot never goes back. So all of the copy belongs to that word, in whatever order the system moved
   the bytes. (The fields of a record in flight may still be stamped: each of them is 8 aligned bytes.)

Where they differ, the third reading is the copy of the next attempt and a fourth brings its last words. A piece
stays in the processor's cache, so the readings after the first are cheap.

A read sees what the writer's mapping holds: Linux keeps one page of memory for both, and so does Windows for
files on local drives. Over a network the writer's machine decides when others see what it wrote, mapped or
not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.system.regular_file import RegularFile
from pyddpdiag.trace.header import Header
from pyddpdiag.trace.layout import HEADER_BYTES, RECORD_BYTES, Records, State, record_dtype
from pyddpdiag.trace.table import take

RETRIES: Final = 4
PIECE: Final = 2**13
"""Slots to read at a time: 1 MiB."""

FEW: Final = 8
"""A writer that is killed may leave some slots that it never filled; a file that lacks more is damaged."""

UNUSED_LIMIT: Final = 2**20
"""Reading stops after this many slots without a record (128 MiB). A sound file has hardly any below
`tickets`."""

UInt64 = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]


def tickets_of(records: Records) -> UInt64:
    """The ticket in each publication word; uint64, one per record."""
    return np.asarray((records["word"] >> np.uint64(2)) - np.uint64(1))


class PublishedRecords:
    """Iterates over the published records of a trace, piece by piece, in the order of their slots.

    With `since`, only over the slots of the tickets from there on, older first; what else such a slot holds (a record
    that a newer one could not replace) comes along.

    Each piece is in the file's byte order and is overwritten by the next one. `torn` counts the records that
    were being written, `astray` those whose ticket belongs in another slot, `absent` those that the header counts and
    that the file does not hold, and `notes` says what is missing; all are complete once the iteration is.
    """

    def __init__(self, file: RegularFile, header: Header, since: int = 0) -> None:
        self.torn = self.astray = 0
        self._cut = self._unused = 0
        self._file = file
        self._capacity = header.capacity
        there = max(0, file.size - HEADER_BYTES) // RECORD_BYTES
        self._used = min(header.capacity, header.tickets, there)
        self._stretches = None if since == 0 else _slots_of(since, header.tickets, header.capacity, there)
        held = self._used if self._stretches is None else sum(end - begin for begin, end in self._stretches)
        self._expected = max(0, min(header.capacity, header.tickets - since))
        self._cut = self._expected - held
        dtype = record_dtype(header.byte_order)
        # Two copies of a piece; each is the second, third or fourth reading in turn.
        self._buffers = tuple(np.empty(min(PIECE, self._used), dtype) for _ in range(2))

    @property
    def absent(self) -> int:
        """Records that are not in the file, though the header counts them and none has replaced them."""
        return self._cut + self._unused

    @property
    def notes(self) -> list[str]:
        """What is wrong with the file."""
        found = []
        if self._cut:
            there = self._expected - self._cut
            found.append(f"truncated: it has {there} of {self._expected} records; copy the file again.")
        if self._unused > FEW:
            found.append(f"{self._unused} of {self._used} slots hold no record; copy the file again.")
        return found

    def __iter__(self) -> Iterator[Records]:
        """Yield the published records."""
        if self._stretches is not None:
            for begin, end in self._stretches:
                for first in range(begin, end, PIECE):
                    yield from self._piece(first, min(PIECE, end - first))
            return
        first, end = 0, self._used
        empty = read = 0
        sparse = False
        while first < self._used:
            count = min(PIECE, end - first)
            unused = yield from self._piece(first, count)
            first += count
            read += count
            empty += unused
            if empty > UNUSED_LIMIT:
                break
            # Rare in a sound file, so a file that is being written need not be asked for its holes.
            sparse = sparse or 2 * unused > count
            if sparse and (first == end or end == self._used):
                first, end = self._skip_hole(first)
        self._unused = self._used - read + empty

    def _skip_hole(self, first: int) -> tuple[int, int]:
        """From `first` on, the first slot in the file's next stretch of data, and the first behind it."""
        data = self._file.data_after(HEADER_BYTES + RECORD_BYTES * first)
        if data is None:
            return self._used, self._used
        begin, end = ((offset - HEADER_BYTES) for offset in data)
        return max(first, begin // RECORD_BYTES), min(self._used, -(-end // RECORD_BYTES))

    def _piece(self, first: int, count: int) -> Generator[Records, None, int]:
        """Yield the published records in `count` slots from `first` on; return how many were never used."""
        copy, spare = self._buffers
        asked, count = count, self._read(first, copy[:count])
        self._cut += asked - count
        before = copy["word"][:count].copy()
        state = before & np.uint64(3)
        self.torn += int(np.count_nonzero(state == State.WRITING))
        wanted = np.flatnonzero(state >= State.IN_FLIGHT)
        unused = int(count - np.count_nonzero(before))
        if not len(wanted):
            return unused
        count = self._read(first, copy[:count])
        for _ in range(RETRIES):
            count = self._read(first, spare[:count])
            wanted = wanted[wanted < count]
            words, after = copy["word"], spare["word"]
            same = (before[wanted] == words[wanted]) & (words[wanted] == after[wanted])
            kept = wanted[same]
            # A piece that is complete can be used without a copy.
            yield from self._in_place(copy if len(kept) == len(copy) else take(copy, kept), kept + first)
            wanted = wanted[~same]
            writing = (after[wanted] & np.uint64(3)) < State.IN_FLIGHT
            self.torn += int(np.count_nonzero(writing))
            wanted = wanted[~writing]
            if not len(wanted):
                break
            before = words.copy()
            copy, spare = spare, copy
        self.torn += len(wanted)
        return unused

    def _in_place(self, records: Records, slots: Int64) -> Iterator[Records]:
        """Yield the records that are in their ticket's slot."""
        tickets = tickets_of(records)
        right = (tickets % np.uint64(self._capacity) == slots) & (tickets < np.uint64(2**62))
        wrong = len(right) - int(np.count_nonzero(right))
        self.astray += wrong
        if wrong < len(records):
            yield take(records, np.flatnonzero(right)) if wrong else records

    def _read(self, first: int, target: Records) -> int:
        """Read slots into `target`; returns how many whole ones the file still had."""
        raw = target.view(np.uint8).reshape(-1)
        return self._file.read_into(raw.data, HEADER_BYTES + RECORD_BYTES * first) // RECORD_BYTES


def _slots_of(since: int, end: int, capacity: int, there: int) -> list[tuple[int, int]]:
    """The slots of the tickets from `since` to before `end`, older first: first and end of each stretch."""
    count = min(max(0, end - since), capacity)
    first = (end - count) % capacity
    stretches = [(first, min(first + count, capacity)), (0, max(0, first + count - capacity))]
    return [(begin, min(last, there)) for begin, last in stretches if begin < min(last, there)]
