"""The header page of one trace file, checked before anything else is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pyddpdiag.errors import TraceError, TraceVersionError
from pyddpdiag.model.now import ProcessEnd
from pyddpdiag.output import decode
from pyddpdiag.trace.layout import BYTE_ORDER_MARK, HEADER_BYTES, MAGIC, MAJOR, RECORD_BYTES, header_dtype

# Bounds on what a header may claim. They keep a damaged file from costing unbounded memory, and are far
# above any real run: 2**26 records are 8 GiB per rank, 2**61 ns are 73 years since the machine was started.
MAX_CAPACITY: Final = 2**26
MAX_WORLD: Final = 2**20
MAX_TIME_NS: Final = 2**61
# The wall clock counts from 1970: 2**61 ns would end in January 2043. This is the year 2262, and all of an i64.
MAX_WALL_NS: Final = 2**63 - 1

_COUNTERS: Final = 256
"""Where the page's counters begin; they stay 0 until the header is done."""


_NUMBERS: Final = (
    *("minor", "capacity", "pid", "rank", "world_size", "monotonic_ns", "wall_ns"),
    *("tickets", "overwritten", "skipped", "dropped"),
)
_ENDS: Final[dict[int, ProcessEnd]] = {1: "orderly", 2: "exception"}


@dataclass(frozen=True)
class Header:
    """The content of a trace's first page. Times are nanoseconds, `byte_order` is `<` or `>`.

    `heartbeat_ns` is the last beat of the recorder's own thread, on the records' clock; 0 = it has none.
    """

    minor: int
    byte_order: str
    capacity: int
    pid: int
    rank: int
    world_size: int
    run_id: str
    monotonic_ns: int
    wall_ns: int
    clock_name: str
    clock_identity: str
    tickets: int
    overwritten: int
    skipped: int
    dropped: int
    closed: bool
    heartbeat_ns: int = 0
    ended: ProcessEnd | None = None

    @property
    def native(self) -> bool:
        """Whether the file has this machine's byte order."""
        return self.byte_order == ("<" if np.little_endian else ">")


def parse_header(page: bytes, path: Path) -> Header:
    """Read the header page.

    Raises:
        TraceVersionError: the major version is not known.
        TraceError: it is not a trace, its recorder never finished the header, or the header cannot be right.
    """
    # The recorder makes the file, fills it with zeros, and writes the magic as the last of the header.
    if not page or (len(page) >= 8 and not any(page[:8]) and not any(page[_COUNTERS:])):
        raise TraceError(
            f"{path}: never started: its recorder was ended while it made the file, or is just making it.",
            hint="see what that rank's process said; leave the file out of the folder if it is gone.",
        )
    if len(page) < HEADER_BYTES:
        raise TraceError(
            f"{path}: truncated: {len(page)} bytes, and the header alone has {HEADER_BYTES}.",
            hint="copy the file again, or leave it out of the folder.",
        )
    if page[:8] != MAGIC:
        raise TraceError(
            f"{path}: not a trace: it begins with {page[:8]!r} instead of {MAGIC!r}.",
            hint="only files that a pyddpdiag recorder wrote may be named rank_<N>.ddptrace.",
        )
    order = "<" if np.frombuffer(page, header_dtype("<"), 1)[0]["byte_order"] == BYTE_ORDER_MARK else ">"
    raw = np.frombuffer(page, header_dtype(order), 1)[0]
    if raw["byte_order"] != BYTE_ORDER_MARK:
        raise TraceError(
            f"{path}: damaged header: the byte order mark is {int(raw['byte_order']):#010x}.",
            hint="copy the file again in binary mode.",
        )
    if raw["major"] != MAJOR:
        raise TraceVersionError(
            f"{path}: format {int(raw['major'])}.{int(raw['minor'])}; this version reads format {MAJOR}.x.",
            hint="read it with the version of pyddpdiag that recorded it, or update this one.",
        )
    _check_sizes(raw, path)
    return Header(
        **{name: int(raw[name]) for name in _NUMBERS},
        byte_order=order,
        run_id=bytes(raw["run_id"]).hex(),
        clock_name=decode(bytes(raw["clock_name"])),
        clock_identity=decode(bytes(raw["clock_identity"])),
        closed=bool(raw["closed"]),
        heartbeat_ns=_beat(int(raw["heartbeat_ns"])),
        ended=_ENDS.get(int(raw["ended"])),
    )


def _beat(at_ns: int) -> int:
    """A heartbeat that can be right; else 0."""
    return at_ns if 0 < at_ns <= MAX_TIME_NS else 0


def _check_sizes(raw: Any, path: Path) -> None:
    """Refuse claims that no recorder makes, with the field, its value and what would be right."""
    world = int(raw["world_size"])
    checks = (
        ("header_bytes", int(raw["header_bytes"]), HEADER_BYTES, HEADER_BYTES),
        ("record_bytes", int(raw["record_bytes"]), RECORD_BYTES, RECORD_BYTES),
        ("capacity", int(raw["capacity"]), 1, MAX_CAPACITY),
        ("world_size", world, 1, MAX_WORLD),
        ("rank", int(raw["rank"]), 0, world - 1),
        ("monotonic_ns", int(raw["monotonic_ns"]), 0, MAX_TIME_NS),
        ("wall_ns", int(raw["wall_ns"]), 0, MAX_WALL_NS),
    )
    for field, value, least, most in checks:
        if not least <= value <= most:
            right = str(least) if least == most else f"between {least} and {most}"
            raise TraceError(
                f"{path}: damaged header: {field} is {value}, and should be {right}.",
                hint="copy the file again, or leave it out of the folder.",
            )
