"""Single operations worth naming: those that failed, and those that had begun and not ended."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pyddpdiag.analyse.names import Names
from pyddpdiag.model import OpenOperation, OperationError
from pyddpdiag.trace.layout import TIMES_USED, BucketTime, CollectiveTime, Flag, Kind, Records
from pyddpdiag.trace.reader import RankTrace, is_in_flight, tickets_of
from pyddpdiag.trace.run import Run
from pyddpdiag.trace.text import TEXT_LIMIT, decode

LISTED: Final = 1000
MAX_PARTS: Final = TEXT_LIMIT // 64


ENDED: Final = {Kind.BUCKET: BucketTime.ENDED, Kind.COLLECTIVE: CollectiveTime.ENDED}
"""The kinds that are operations, and which of their times is the end."""


def open_records(trace: RankTrace) -> Records:
    """Buckets and other collectives that began and did not end, or were closed without an end, by ticket."""
    parts = []
    for kind, ended in ENDED.items():
        records = trace.of_kind(kind)
        # Few have no end, so look for those first.
        without_end = records[records["times"][:, ended] == 0]
        parts.append(without_end[is_in_flight(without_end) | ((without_end["flags"] & Flag.ABANDONED) > 0)])
    return _by_ticket(parts)


def error_records(trace: RankTrace) -> Records:
    """Records with the error flag, by ticket."""
    parts = [trace.of_kind(kind) for kind in Kind if kind != Kind.ERROR]
    return _by_ticket([part[(part["flags"] & Flag.ERROR) > 0] for part in parts])


def _by_ticket(parts: list[Records]) -> Records:
    records = np.concatenate(parts)
    return np.asarray(records[np.argsort(tickets_of(records), kind="stable")])


def open_operations(run: Run, names: Names) -> tuple[tuple[OpenOperation, ...], int]:
    """Operations in flight on all ranks (the first thousand), and how many there are."""
    found: list[OpenOperation] = []
    total = 0
    for trace in run.ranks:
        records = open_records(trace)
        total += len(records)
        latest = _latest(trace) if len(records) else 0
        for record in records[: LISTED - len(found)]:
            bucket = record["kind"] == Kind.BUCKET
            times = record["times"]
            seen = times[: TIMES_USED[Kind.BUCKET if bucket else Kind.COLLECTIVE]]
            began = int(seen[seen > 0].min()) if (seen > 0).any() else latest
            started = times[BucketTime.STARTED if bucket else CollectiveTime.STARTED]
            found.append(
                OpenOperation(
                    rank=trace.rank,
                    kind="bucket" if bucket else "collective",
                    what=_what(record, names),
                    sequence=int(record["sequence"]),
                    step=int(record["step"]),
                    bytes=int(record["bytes"]),
                    started=bool(started > 0),
                    abandoned=bool(record["flags"] & Flag.ABANDONED),
                    open_ms=max(0, latest - began) / 1e6,
                )
            )
    return tuple(found), total


def operation_errors(run: Run, names: Names) -> tuple[tuple[OperationError, ...], int]:
    """Operations that failed on all ranks (the first thousand), and how many there are."""
    found: list[OperationError] = []
    total = 0
    for trace in run.ranks:
        records = error_records(trace)
        total += len(records)
        texts = _texts(trace) if len(records) else {}
        for record in records[: LISTED - len(found)]:
            ticket = int(record["word"] >> np.uint64(2)) - 1
            found.append(
                OperationError(
                    rank=trace.rank,
                    kind=Kind(int(record["kind"])).name.lower(),
                    what=_what(record, names),
                    sequence=int(record["sequence"]),
                    step=int(record["step"]),
                    text=texts.get(ticket, ""),
                )
            )
    return tuple(found), total


def _texts(trace: RankTrace) -> dict[int, str]:
    """Error texts by the ticket of their operation, joined from their parts."""
    parts = trace.of_kind(Kind.ERROR)
    parts = parts[np.lexsort((tickets_of(parts), parts["index"], parts["reference"]))]
    joined: dict[int, list[bytes]] = {}
    for reference, raw in zip(
        parts["reference"][: LISTED * MAX_PARTS].tolist(),
        parts["text"][: LISTED * MAX_PARTS].tolist(),
        strict=True,
    ):
        joined.setdefault(reference, []).append(raw)
    # A character may lie across two parts, so the bytes are joined first.
    return {reference: decode(b"".join(pieces[:MAX_PARTS])) for reference, pieces in joined.items()}


def _what(record: Any, names: Names) -> str:
    kind = record["kind"]
    if kind == Kind.BUCKET:
        return names.bucket(int(record["reference"]))
    if kind == Kind.COLLECTIVE:
        return decode(bytes(record["name"])) or "unknown"
    return Kind(int(kind)).name.lower()


def _latest(trace: RankTrace) -> int:
    """The latest time in a rank's records."""
    return max(
        int(trace.of_kind(kind)["times"][:, :used].max(initial=0)) for kind, used in TIMES_USED.items()
    )
