"""Runs whose ranks are wired by connections of which everything is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyddpdiag.model.findings import Finding
from support.reported import findings
from support.trace_writer import MS, RankWriter, write_training

BEGIN = 2_000 * MS
END = 4_000 * MS
MEGABYTES = 100
SEGMENTS = 70_000


def connect(sender: RankWriter, receiver: RankWriter, local: str, peer: str, **readings: int | None) -> None:
    """Both ends of one connection over which only the sender sends: `readings` is how far its counters went.

    By default 100 MB in 70,000 segments, none lost, in 1 s of busy time, with a round trip of 0.02 ms.
    """
    sound: dict[str, int | None] = {
        "bytes_sent": MEGABYTES * 10**6,
        "bytes_acked": MEGABYTES * 10**6,
        "bytes_received": 0,
        "busy_us": 10**6,
        "segments": SEGMENTS,
        "retransmitted": 0,
        "dsack_dups": 0,
        "min_rtt_us": 20,
        "rtt_us": 100,
        **readings,
    }
    there, back = f"{local}|{peer}", f"{peer}|{local}"
    sender.connection_name(there)
    receiver.connection_name(back)
    # What was counted before the first reading is no part of the run.
    constant = {"min_rtt_us", "rtt_us"}
    before = {
        name: value if name in constant or value is None else 1000 + index
        for index, (name, value) in enumerate(sound.items())
    }
    after = {
        name: value if name in constant or value is None else value + 1000 + index
        for index, (name, value) in enumerate(sound.items())
    }
    sender.reading(there, BEGIN, **before)
    sender.reading(there, END, **after)
    receiver.reading(
        back, BEGIN, bytes_sent=0, bytes_acked=0, busy_us=0, segments=0, retransmitted=0, dsack_dups=0
    )


def watch(
    writer: RankWriter,
    local: str,
    peer: str,
    moments: Sequence[tuple[int, int]],
    busy: float = 1.0,
    segments: int = 7000,
    sent: int = 10**7,
    each: Sequence[int] = (),
) -> None:
    """Readings of a connection half a second apart: of each, the round trip in us, and how many segments were lost.

    It is busy for a fifth of the time, or `busy` times that (`each`: before each reading so many times that), and sends
    so many `segments` and bytes each time.
    """
    name = f"{local}|{peer}"
    writer.connection_name(name)
    lost, used = 0, 0.0
    for place, (rtt_us, losses) in enumerate(moments):
        lost += losses
        used += 10**5 * busy * (each[place] if each else 1) * (place > 0)
        writer.reading(
            name,
            BEGIN + place * 500 * MS,
            bytes_sent=place * sent,
            bytes_acked=place * sent,
            busy_us=round(used),
            segments=place * segments,
            retransmitted=lost,
            dsack_dups=0,
            min_rtt_us=20,
            rtt_us=rtt_us,
        )


def ring(
    folder: Path,
    world_size: int,
    faults: Mapping[tuple[int, int], Mapping[str, int | None]] | None = None,
    *,
    ips: Mapping[int, str] | None = None,
    sidecar: Mapping[str, Any] | None = None,
    wire_ms: float = 14.0,
    **training: Any,
) -> list[RankWriter]:
    """A training whose ranks send to the rank before them, each on a host of its own; half of a step is exposed.

    Args:
        folder: where to write.
        world_size: number of ranks.
        faults: by sender and receiver, what their connection's counters say.
        ips: addresses of ranks that are not 10.0.0.<rank + 1>.
        sidecar: what every sidecar says in addition.
        wire_ms: of each bucket.
        training: for `write_training`.
    """
    faults = faults or {}
    writers = write_training(folder, world_size=world_size, steps=20, wire_ms=wire_ms, **training)
    known = {rank: (ips or {}).get(rank, f"10.0.0.{rank + 1}") for rank in range(world_size)}
    for rank, writer in enumerate(writers):
        writer.sidecar.update(sidecar or {})
        to = (rank - 1) % world_size
        connect(
            writer,
            writers[to],
            f"{known[rank]}:{5000 + rank}",
            f"{known[to]}:{6000 + to}",
            **faults.get((rank, to), {}),
        )
    for writer in writers:
        writer.write(folder)
    return writers


def only(folder: Path) -> Finding:
    """The only finding of a folder."""
    # That a rank was asked for another interface than the rest is noted beside it.
    (found,) = (finding for finding in findings(folder) if finding.kind != "settings_differ")
    return found
