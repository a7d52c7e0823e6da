"""A training whose trace has everything that a page shows: forward, gradients, links, other collectives, a phase."""

import json
import struct
from pathlib import Path
from typing import Any

from support.trace_writer import COMPLETE, GROUP, MS, RankWriter, bucket_id, write_training

GRADIENT = 7
BACKWARD = 3
STEP = 4


def write_shown(folder: Path, *, world_size: int = 3, steps: int = 24, buckets: int = 3, **more: Any) -> Path:
    """Write the run; rank 1 is late, and rank 2 puts a NaN into step 16. Returns the folder."""
    writers = write_training(
        folder, world_size=world_size, steps=steps, buckets=buckets, late_ms={1: 12.0}, jitter_ms=0.4, **more
    )
    for writer in writers:
        _forward_times(writer)
        for step in range(0, steps, 8):
            for index in range(buckets):
                bad = writer.rank == 2 and step == 16 and index == 0
                _gradient(
                    writer,
                    step,
                    step * buckets + index,
                    index,
                    float("nan") if bad else 4.0 + writer.rank,
                    int(bad),
                )
        _link(writer, world_size)
        writer.collective("gloo:broadcast", 2_000_000_000 + 1 * MS, 2_000_000_000 + 3 * MS, bytes=4096)
        _looks(writer)
        writer.phase("checkpoint", 2_000_000_000 + 30 * MS, 2_000_000_000 + 34 * MS)
        writer.sidecar["interfaces"] = [
            {"name": "eth0", "addresses": [f"10.0.0.{writer.rank + 1}/24"], "speed_mbit": 1000, "up": True}
        ]
        writer.write(folder)
    epochs = [
        {
            "epoch": n,
            "train_loss": 2.0 / (n + 1),
            "test_loss": 2.2 / (n + 1),
            "accuracy": 0.5 + 0.1 * n,
            "seconds": 3.0,
        }
        for n in range(4)
    ]
    (folder / "training.json").write_text(
        json.dumps({"schema_version": 1, "epochs": epochs}), encoding="utf-8"
    )
    return folder


def _forward_times(writer: RankWriter) -> None:
    begins = {int(r["step"]): int(r["times"][1]) for r in writer.records if r["kind"] == STEP}
    for record in writer.records:
        if record["kind"] == BACKWARD:
            begin, split = begins[int(record["step"])], int(record["times"][0])
            record["times"][4], record["times"][5] = begin, split


def _looks(writer: RankWriter) -> None:
    """One at each step, now here, now there; the late rank is mostly in a function of its own."""
    for step, begin in ((int(r["step"]), int(r["times"][1])) for r in writer.records if r["kind"] == STEP):
        late = writer.rank == 1 and step % 4 != 0
        line = ("train.py", 9, "load_labels") if late else ("train.py", 31 + step % 2, "main")
        writer.look(
            begin + (1 + step % 3) * 2 * MS, line, "time.sleep" if late else "torch.nn.Linear.forward"
        )


def _gradient(writer: RankWriter, step: int, sequence: int, index: int, squares: float, bad: int) -> None:
    first, largest = struct.unpack("<qq", struct.pack("<dd", squares, 0.5))
    writer.add(
        GRADIENT,
        times=(first, largest, bad, 0 if bad else -1, index if bad else -1, 7, 1000),
        group=GROUP,
        sequence=sequence,
        reference=bucket_id(index),
        step=step,
        state=COMPLETE,
    )


def _link(writer: RankWriter, world_size: int) -> None:
    """This rank's ends of the connections to the next rank, to which it listens, and to the one before; read twice."""
    after, before = (writer.rank + 1) % world_size, (writer.rank - 1) % world_size
    mine = f"10.0.0.{writer.rank + 1}"
    ends = {
        f"{mine}:{5000 + writer.rank}|10.0.0.{after + 1}:{4000 + writer.rank}": 10_000,
        f"{mine}:{4000 + before}|10.0.0.{before + 1}:{5000 + before}": 100_000,
    }
    for name, sent in ends.items():
        writer.connection_name(name)
        for at, scale in ((2_000_000_000, 1), (2_500_000_000, 100)):
            writer.reading(
                name,
                at,
                bytes_sent=sent * scale,
                bytes_acked=sent * scale,
                bytes_received=sent * scale,
                busy_us=1000 * scale,
                segments=10 * scale,
                retransmitted=0,
                dsack_dups=0,
                min_rtt_us=120,
                rtt_us=150,
            )
