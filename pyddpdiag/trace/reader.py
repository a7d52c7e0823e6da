"""One rank's trace: a consistent snapshot of a file that may still be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.errors import TraceError
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.system.regular_file import FileIdentity, NotAFileError, RegularFile
from pyddpdiag.trace.header import MAX_TIME_NS, Header, parse_header
from pyddpdiag.trace.layout import (
    HEADER_BYTES,
    TIMES_USED,
    BucketTime,
    CollectiveTime,
    Flag,
    GradientValue,
    Kind,
    PhaseTime,
    Records,
    to_native,
)
from pyddpdiag.trace.now import Glance, glance
from pyddpdiag.trace.rows import is_in_flight
from pyddpdiag.trace.sidecar import SidecarReader, with_last_signal
from pyddpdiag.trace.slots import FEW, PublishedRecords, tickets_of
from pyddpdiag.trace.table import Tables, take

__all__ = ["RankTrace", "is_in_flight", "read_header", "read_trace", "tickets_of"]

ORDERED: Final = {
    Kind.BUCKET: tuple(
        (start, BucketTime.ENDED) for start in (BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED)
    ),
    Kind.COLLECTIVE: ((CollectiveTime.STARTED, CollectiveTime.ENDED),),
    Kind.PHASE: ((PhaseTime.BEGIN, PhaseTime.END),),
}
"""Pairs of times; the second, where it was seen, cannot be earlier than the first."""

RARE: Final = (Kind.ERROR, Kind.HISTORY)
"""Records that do not come again with every step; neither do the names of connections."""

OF_A_STEP: Final = (Kind.BUCKET, Kind.BACKWARD, Kind.STEP, Kind.COLLECTIVE, Kind.USAGE)

FIRST_NOT_FINITE: Final = 64
"""So many records of gradients that are not finite are read, however old: what came first matters."""


@dataclass(frozen=True, eq=False)
class RankTrace:
    """One rank's records by kind, each sorted by ticket, in this machine's byte order.

    `count` is how many there are, without readings of connections and sums over steps. `newest_ns` is the latest time
    in them, on the rank's own clock; 0 = there is none.
    `torn` counts records that were being written, `malformed` those whose content cannot be right, `absent` those
    that the header counts and the file lacks, and `unknown` those of a kind that this version doesn't know; none of
    them is in `by_kind`. `damage` says what is wrong with a file that lacks more than its writer may have left out, or
    holds much that cannot be right. `warnings` are
    pairs of a file's name and what is wrong with it. `glance` is what was seen of the process that writes it,
    None if that runs elsewhere. `older` records, or fewer, were in the file and were not read, or are left out.
    """

    path: Path
    header: Header
    sidecar: Sidecar
    by_kind: Mapping[Kind, Records]
    count: int
    newest_ns: int
    torn: int
    malformed: int
    unknown: int
    warnings: tuple[tuple[str, str], ...]
    glance: Glance | None = None
    older: int = 0
    absent: int = 0
    damage: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every record that is still there was read: what has no record did not happen, or is overwritten."""
        return not (self.header.dropped or self.torn or self.malformed or self.absent)

    @property
    def begins_late(self) -> bool:
        """Whether there were records before the first one: they were overwritten, or not read."""
        return bool(self.header.overwritten or self.older)

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.header.rank

    @cached_property
    def on_device(self) -> bool:
        """Whether it has buckets on an accelerator."""
        return bool((self.of_kind(Kind.BUCKET)["flags"] & Flag.DEVICE).any())

    def of_kind(self, kind: Kind) -> Records:
        """This rank's records of one kind, sorted by ticket."""
        return self.by_kind[kind]

    def __len__(self) -> int:
        """Number of records, without readings of connections and sums over steps."""
        return self.count

    def without_records(self) -> RankTrace:
        """A copy without the records, for when they are no longer needed."""
        return replace(self, by_kind={})


def read_header(path: Path) -> tuple[Header, FileIdentity, int]:
    """The header of a trace file, the file's identity (None: it has none), and its size in bytes.

    Raises:
        TraceError: the file cannot be read or is not a trace; the message names it.
    """
    with opened(path) as file:
        return parse_header(file.read(0, HEADER_BYTES), path), file.identity, file.size


def read_trace(
    path: Path,
    sidecars: SidecarReader | None = None,
    tables: Tables | None = None,
    newest: int | None = None,
    keep: int | None = None,
    steps: npt.NDArray[np.int64] | None = None,
) -> RankTrace:
    """Read one trace file. It may still be written by a live process.

    Args:
        sidecars: what the traces of one run share; the file's own if None.
        tables: where to put the records, until another trace is read into them; None: they are the trace's own.
        newest: read so many of the newest records, and not the others; None: all.
        keep: leave out what is not among so many of the newest records, unless it is rare; None: leave out
            nothing.
        steps: of what has a step, keep only that of these; None: of all.

    Raises:
        TraceError: the file cannot be read or is not a trace; the message names it.
    """
    with opened(path) as file:
        header = parse_header(file.read(0, HEADER_BYTES), path)
        process = glance(header)
        since = 0 if newest is None else max(0, header.tickets - newest)
        published = PublishedRecords(file, header, since)
        shared, tables = tables, tables or Tables()
        tables.clear()
        pieces = published if header.native else map(to_native, published)
        oldest = 0 if keep is None else header.tickets - keep
        unknown, unsound, left_out = sort_in(pieces, tables, oldest, steps)
        if shared is None:
            tables.fit()
    sidecar = (sidecars or SidecarReader()).read(path.with_suffix(".json"))
    read = Read(published, unknown, unsound, since, left_out=left_out)
    return assemble(path, header, process, tables, read, sidecar)


@dataclass(frozen=True)
class Read:
    """What a look at a file's slots left out: unknown kinds, unsound records, and those before ticket `since`.

    `left_out`: older records that were read. `absent`: records that are not in the file, where more than `published`
    was looked at.
    """

    published: PublishedRecords
    unknown: int
    unsound: int
    since: int = 0
    absent: int | None = None
    left_out: int = 0


def assemble(
    path: Path,
    header: Header,
    process: Glance | None,
    tables: Tables,
    read: Read,
    with_sidecar: tuple[Sidecar, tuple[str, ...]],
) -> RankTrace:
    """A trace of the records in `tables`; `with_sidecar` is its sidecar and what is wrong with that."""
    (sidecar, said), published = with_sidecar, read.published
    sidecar = with_last_signal(sidecar, path)
    malformed = published.astray + read.unsound
    absent = published.absent if read.absent is None else read.absent
    warnings = [(path.name, text) for text in published.notes] + [
        (path.with_suffix(".json").name, text) for text in said
    ]
    if not header.tickets:
        warnings.append((path.name, "never started: nothing was recorded."))
    for amount, text in (
        (published.torn, "records were being written and are not counted."),
        (malformed, "records cannot be right and were left out; the file is damaged."),
        (read.unknown, "records are of a kind that this version doesn't know."),
        (header.overwritten, "older records were overwritten; a larger capacity keeps more."),
        (header.dropped, "events were lost: no slot was free."),
    ):
        if amount:
            warnings.append((path.name, f"{amount} {text}"))
    by_kind = {kind: _by_ticket(table.records()) for kind, table in tables.by_kind.items()}
    newest = max(int(by_kind[kind]["times"][:, :used].max(initial=0)) for kind, used in TIMES_USED.items())
    # Readings go on while nothing happens, and sums are of other records: they are no events.
    count = sum(
        len(records) for kind, records in by_kind.items() if kind not in (Kind.CONNECTION, Kind.HISTORY)
    )
    return RankTrace(
        path,
        header,
        sidecar,
        by_kind,
        count,
        newest,
        published.torn,
        malformed,
        read.unknown,
        tuple(warnings),
        process,
        max(0, min(read.since, header.capacity - (header.tickets - read.since))) + read.left_out,
        absent,
        _damage(published.notes, absent, malformed),
    )


def _damage(notes: list[str], absent: int, malformed: int) -> str:
    wrong = [note.partition(";")[0] for note in notes]
    if not wrong and absent > FEW:
        wrong = [f"{absent} records are not in the file"]
    return ", ".join(wrong + [f"{malformed} records cannot be right"] * (malformed > FEW))


@contextmanager
def opened(path: Path) -> Iterator[RegularFile]:
    """The file, open, as a context manager.

    Raises:
        TraceError: it is no regular file, or cannot be opened or read.
    """
    try:
        with RegularFile(path) as file:
            yield file
    except NotAFileError as error:
        raise TraceError(f"{path}: not a file.", hint="only files may be named rank_<N>.ddptrace.") from error
    except OSError as error:
        raise TraceError(
            f"{path}: cannot be read: {error.strerror or error}.", hint="check the file and its permissions."
        ) from error


def sort_in(
    pieces: Iterable[Records],
    tables: Tables,
    since: int = 0,
    steps: npt.NDArray[np.int64] | None = None,
) -> tuple[int, int, int]:
    """Put records into the table of their kind.

    Before ticket `since` only the rare ones; of what has a step only that of `steps` (None: of all).

    Returns:
        How many are of unknown kinds, cannot be right, and are left out because they are older.
    """
    unknown = unsound = left_out = not_finite = 0
    for piece in pieces:
        kinds = piece["kind"].copy()
        if since > 0:
            named = (kinds == Kind.CONNECTION) & (piece["flags"] & Flag.NAME > 0)
            old = (tickets_of(piece) < np.uint64(since)) & ~np.isin(kinds, RARE) & ~named
            bad = np.flatnonzero(
                old & (kinds == Kind.GRADIENT) & (piece["times"][:, GradientValue.NON_FINITE] > 0)
            )
            old[bad[: FIRST_NOT_FINITE - not_finite]] = False
            not_finite += min(len(bad), FIRST_NOT_FINITE - not_finite)
            left_out += int(np.count_nonzero(old))
            # No kind: it goes into no table.
            kinds[old] = 0
        if steps is not None:
            other = np.isin(kinds, OF_A_STEP) & ~np.isin(piece["step"], steps)
            left_out += int(np.count_nonzero(other))
            kinds[other] = 0
        unknown += len(piece)
        for kind, table in tables.by_kind.items():
            chosen = np.flatnonzero(kinds == kind)
            if not len(chosen):
                continue
            before = len(table)
            part = table.append(piece, chosen)
            good = _plausible(part["times"][:, : TIMES_USED.get(kind, 0)], ORDERED.get(kind, ()))
            if good is not None:
                table.keep(before, good)
            unknown -= len(chosen)
            unsound += before + len(chosen) - len(table)
    return unknown - left_out, unsound, left_out


def _by_ticket(records: Records) -> Records:
    if len(records) < 2:
        return records
    tickets = tickets_of(records)
    if (tickets[1:] > tickets[:-1]).all():
        return records
    return take(records, np.argsort(tickets, kind="stable"))


def _plausible(
    times: npt.NDArray[np.int64], ordered: Iterable[tuple[int, int]]
) -> npt.NDArray[np.bool_] | None:
    """Which records can be right (None: all): all times within bounds, no end before its start."""
    # Seen as unsigned, a negative time is a huge one.
    unsigned = times.view(np.uint64)
    good = np.ones(len(times), np.bool_)
    if times.size and unsigned.max() > MAX_TIME_NS:
        good = np.asarray((unsigned <= MAX_TIME_NS).all(axis=1))
    for start, end in ordered:
        first, last = times[:, start], times[:, end]
        good &= (last >= first) | (last == 0)
    return None if good.all() else good
