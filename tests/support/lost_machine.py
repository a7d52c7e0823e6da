"""Three machines with a rank each, of which the last is lost in mid-run: the others wait in one bucket to their end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.trace_writer import IN_FLIGHT, MS, RankWriter, bucket_id, write_training

RANKS = 3
STEPS = 200
GONE = 2
"""The rank of the machine that is lost."""
READ_MS = 500
SENT = 2 * 10**9
"""Bytes that each rank sends to the one before it."""
NODES = tuple(f"{rank:016x}" for rank in range(RANKS))
START_S = 1_700_000_000


@dataclass
class LostMachine:
    """The run, and its pieces: each machine has a clock of its own.

    Attributes:
        writers: of the ranks.
        cut_ns: when the machine is lost, on the common clock.
        sat_s: for how long the others then sit in a bucket.
        exit_codes: what each machine's `pyddpdiag run` notes; None: no end.
    """

    writers: list[RankWriter]
    cut_ns: int
    sat_s: float
    exit_codes: dict[int, int | None] = field(default_factory=lambda: {0: 143, 1: 143, GONE: None})

    def write(self, folder: Path, *, without: tuple[int, ...] = ()) -> None:
        """Writes all that is brought to the first machine."""
        folder.mkdir(parents=True, exist_ok=True)
        for writer in self.writers:
            rank = writer.rank
            if rank in without:
                continue
            writer.write(folder)
            until = self.cut_ns + (0 if rank == GONE else int((self.sat_s + 1) * 1000) * MS)
            note = {
                "host": f"machine{rank}",
                "clock": clock(rank)[0],
                "pid": 1,
                "at_ns": until + clock(rank)[1],
                "at_s": START_S + until / 1e9,
                "exit_code": self.exit_codes[rank],
            }
            (folder / f"node_{NODES[rank]}.json").write_text(json.dumps(note), encoding="utf-8")


def clock(rank: int) -> tuple[str, int, int]:
    """Its identity, how far it is ahead of the first machine's, and by how much its wall clock is wrong, in ns."""
    return f"clock {rank}", rank * 500 * 1000 * MS, 0


def lost_machine(
    scratch: Path, end: dict[str, Any] | None = None, sat_s: float = 134.0, **training: Any
) -> LostMachine:
    """The run.

    Args:
        scratch: where files may be left.
        end: what the sidecars of the two that are left say of their end; None: nothing, as where they are killed.
        sat_s: for how long these sit in a bucket.
        training: for `write_training`.
    """
    usual: dict[str, Any] = {
        "world_size": RANKS,
        "steps": STEPS,
        "wire_ms": 8.0,
        "jitter_ms": 1.0,
        "buckets": 2,
    }
    writers = write_training(scratch, **usual | training, clocks={rank: clock(rank) for rank in range(RANKS)})
    ended = max(int(record["times"].max()) for record in writers[0].records)
    cut = ended + 5 * MS
    for writer in writers:
        rank, ahead = writer.rank, clock(writer.rank)[1]
        lives_until = cut if rank == GONE else cut + int(sat_s * 1000) * MS
        writer.capacity = 8192
        writer.header |= {"minor": 2, "closed": 0, "heartbeat_ns": lives_until + ahead}
        writer.sidecar |= {
            "host": f"machine{rank}",
            "environment": {},
            "interfaces": [{"name": "eth0", "addresses": [f"10.0.0.{rank + 1}/24"]}],
            "traffic": {"eth0": {"sent": SENT * 11 // 10, "received": SENT * 11 // 10}},
            "launch": {"command": ["train.py"], "cures": {}, "node": NODES[rank]},
        }
        # The bucket of the next step, in which the others sit.
        if rank != GONE:
            now = cut + ahead
            writer.bucket(
                2 * usual["steps"], now, now, 0, state=IN_FLIGHT, reference=bucket_id(0), step=usual["steps"]
            )
            if end is not None:
                writer.sidecar["end"] = {"at_ns": lives_until + ahead, **end}
        _read(writers, rank, cut, lives_until)
    return LostMachine(writers, cut, sat_s)


def _read(writers: list[RankWriter], rank: int, cut: int, lives_until: int) -> None:
    """A ring: each rank sends to the one before it, and a tenth of that to the one behind it. Once the machine is gone,
    what is unconfirmed keeps the connections to it busy."""
    writer, ahead = writers[rank], clock(rank)[1]
    to, of = (rank - 1) % RANKS, (rank + 1) % RANKS
    sends, takes = (
        f"10.0.0.{one + 1}:{5000 + one}|10.0.0.{other + 1}:{6000 + other}"
        for one, other in ((rank, to), (of, rank))
    )
    back = "|".join(reversed(takes.split("|")))
    writer.connection_name(sends)
    writer.connection_name(back)
    begin = 2_000 * MS
    for at in range(begin, lives_until, READ_MS * MS):
        trained = (min(at, cut) - begin) / (cut - begin)
        for name, peer, size in ((sends, to, SENT), (back, of, SENT // 10)):
            stuck_s = max(0, at - cut) / 1e9 if peer == GONE else 0.0
            writer.reading(
                name,
                at + ahead,
                bytes_sent=int(trained * size),
                bytes_acked=int(trained * size),
                busy_us=int(trained * size / 500 + 1e6 * stuck_s),
                segments=int(trained * size) // 1448,
                retransmitted=int(stuck_s / 10),
                dsack_dups=0,
                min_rtt_us=100,
                rtt_us=300,
            )
