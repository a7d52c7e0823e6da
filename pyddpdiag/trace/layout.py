"""The bytes of a trace file as NumPy dtypes. docs/trace-format.md is the contract, restated here."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MAGIC: Final = b"DDPTRACE"
MAJOR: Final = 1
BYTE_ORDER_MARK: Final = 0x01020304
HEADER_BYTES: Final = 4096
RECORD_BYTES: Final = 128

Records = npt.NDArray[np.void]
"""A structured array of `record_dtype`."""


class Kind(IntEnum):
    """What a record describes."""

    BUCKET = 1
    COLLECTIVE = 2
    BACKWARD = 3
    STEP = 4
    PARAMETER = 5
    ERROR = 6
    GRADIENT = 7
    USAGE = 8
    CONNECTION = 9
    PHASE = 10
    WEIGHTS = 11
    HISTORY = 12


class Flag(IntFlag):
    """Bits of a record's `flags`."""

    ERROR = 1
    LAST_BUCKET = 2
    NATIVE = 4
    DEVICE = 8
    NO_BATCH = 16
    SAMPLED = 32
    ABANDONED = 64
    COMPRESSED = 128
    PARAMETER = 256
    FOREIGN = 512
    REDUCER = 1024
    NAME = 2048
    SHARED = 4096
    FINITE = 8192
    SPARSE = 16384


class State(IntEnum):
    """The low two bits of the publication word."""

    UNUSED = 0
    WRITING = 1
    IN_FLIGHT = 2
    COMPLETE = 3


class BucketTime(IntEnum):
    """Columns of `times` in a bucket record."""

    READY = 0
    ENQUEUED = 1
    STARTED = 2
    ENDED = 3
    CONSUMED = 4
    DEVICE_READY = 5
    RETURNED = 6


class CollectiveTime(IntEnum):
    """Columns of `times` in a collective record; the third is not a time but a number, the last four hold its name."""

    STARTED = 0
    ENDED = 1
    FINGERPRINT = 2


class BackwardTime(IntEnum):
    """Columns of `times` in a backward record."""

    BEGIN = 0
    FIRST_GRADIENT = 1
    FINALIZE_BEGIN = 2
    FINALIZE_END = 3
    FORWARD_BEGIN = 4
    FORWARD_END = 5


class StepTime(IntEnum):
    """Columns of `times` in a step record."""

    WAIT_BEGIN = 0
    BEGIN = 1
    END = 2


class GradientValue(IntEnum):
    """Columns of `times` in a gradient record, which hold no times: two f64, integers, one f64."""

    SUM_SQUARES = 0
    ABSOLUTE_MAXIMUM = 1
    NON_FINITE = 2
    FIRST_NON_FINITE = 3
    PARAMETER = 4
    CHECKSUM = 5
    ELEMENTS = 6
    LEVEL = 7


class ConnectionValue(IntEnum):
    """Columns of `times` in a connection record. Of two readings of 32 bits in one word the first is the low half.

    A word or half of ones: not available.
    """

    AT = 0
    BYTES_SENT = 1
    BYTES_ACKED = 2
    BYTES_RECEIVED = 3
    BUSY_US = 4
    SEGMENTS_AND_RETRANSMITTED = 5
    DSACK_DUPS_AND_OUT_OF_ORDER = 6
    MIN_RTT_AND_RTT_US = 7


class UsageValue(IntEnum):
    """Columns of `times` in a usage record: readings that only grow, -1 = not available; only the first is a time."""

    AT = 0
    THREAD_CPU = 1
    RUN_DELAY = 2
    PROCESS_CPU = 3
    COLLECTOR = 4
    MAJOR_FAULTS = 5
    INVOLUNTARY_SWITCHES = 6
    LOAD_MILLI = 7


class PhaseTime(IntEnum):
    """Columns of `times` in a phase record; the last four hold its name."""

    BEGIN = 0
    END = 1


class HistoryValue(IntEnum):
    """Columns of `times` in a history record: when its steps began and ended, then sums over them in nanoseconds."""

    BEGIN = 0
    END = 1
    OWN = 2
    EXPOSED = 3
    DATA_WAIT = 4
    COLLECTIVES = 5
    THREAD_CPU = 6
    RUN_DELAY = 7


TIMES_USED: Final = {
    Kind.BUCKET: 7,
    Kind.COLLECTIVE: 2,
    Kind.BACKWARD: 6,
    Kind.STEP: 3,
    Kind.PARAMETER: 1,
    Kind.USAGE: 1,
    Kind.PHASE: 2,
    Kind.HISTORY: 2,
}
"""How many columns of `times` are times of events, by kind; the rest is text, readings or unused."""

DTYPE_NAMES: Final = ("other", "float32", "float64", "float16", "bfloat16", "complex64", "complex128")


def _dtype(fields: dict[str, tuple[str, int]], order: str, size: int) -> np.dtype[Any]:
    return np.dtype(
        {
            "names": list(fields),
            "formats": [form if form.startswith(("S", "V")) else order + form for form, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": size,
        }
    )


@cache
def header_dtype(order: str = "=") -> np.dtype[Any]:
    """The header page, in byte order `<`, `>` or `=` (this machine's)."""
    return _dtype(
        {
            "magic": ("S8", 0),
            "major": ("u2", 8),
            "minor": ("u2", 10),
            "byte_order": ("u4", 12),
            "header_bytes": ("u4", 16),
            "record_bytes": ("u4", 20),
            "capacity": ("u8", 24),
            "pid": ("u8", 32),
            "rank": ("u4", 40),
            "world_size": ("u4", 44),
            "run_id": ("V16", 48),
            "monotonic_ns": ("i8", 64),
            "wall_ns": ("i8", 72),
            "clock_name": ("S32", 80),
            "clock_identity": ("S64", 112),
            "tickets": ("u8", 256),
            "overwritten": ("u8", 320),
            "skipped": ("u8", 384),
            "dropped": ("u8", 448),
            "closed": ("u8", 512),
            "heartbeat_ns": ("i8", 576),
            "ended": ("u8", 640),
        },
        order,
        HEADER_BYTES,
    )


_NUMBERS: Final = {
    "word": ("u8", 0),
    "kind": ("u2", 8),
    "dtype": ("u1", 10),
    "reduce_op": ("u1", 11),
    "flags": ("u4", 12),
    "group": ("u8", 16),
    "sequence": ("u8", 24),
    "reference": ("u8", 32),
    "bytes": ("u8", 40),
    "step": ("u4", 48),
    "module": ("u4", 52),
    "index": ("u4", 56),
    "thread": ("u4", 60),
}


@cache
def record_dtype(order: str = "=") -> np.dtype[Any]:
    """A record. `name` (collective, phase) and `text` (error) lie over `times`, as in the file."""
    return _dtype(
        {**_NUMBERS, "times": ("8i8", 64), "name": ("S32", 96), "text": ("S64", 64)}, order, RECORD_BYTES
    )


def _plain_dtype(order: str) -> np.dtype[Any]:
    """The record without overlapping fields, so that a cast cannot write the same bytes twice."""
    return _dtype({**_NUMBERS, "times": ("8i8", 64)}, order, RECORD_BYTES)


def to_native(records: Records) -> Records:
    """Records of the other byte order as this machine's; text is left as it is."""
    swapped = np.empty(len(records), record_dtype())
    other = ">" if np.little_endian else "<"
    swapped.view(_plain_dtype("="))[:] = records.view(_plain_dtype(other))
    kinds = swapped["kind"]
    named = (kinds == Kind.CONNECTION) & (swapped["flags"] & Flag.NAME > 0)
    for field, chosen in (
        ("name", (kinds == Kind.COLLECTIVE) | (kinds == Kind.PHASE)),
        ("text", (kinds == Kind.ERROR) | named),
    ):
        swapped[field][chosen] = records[field][chosen]
    return swapped


RECORD: Final = record_dtype()
