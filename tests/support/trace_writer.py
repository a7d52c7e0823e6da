"""A trace writer in pure NumPy, written from docs/trace-format.md and not from the reader.

It shares no code with pyddpdiag, so that a mistake in one cannot hide behind the same mistake in the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support.looks import At, Look, is_line, looks_file

HEADER_BYTES = 4096
RECORD_BYTES = 128
BUCKET, COLLECTIVE, BACKWARD, STEP, PARAMETER, ERROR = 1, 2, 3, 4, 5, 6
CONNECTION, NAME_FLAG = 9, 2048
USAGE, PHASE = 8, 10
WRITING, IN_FLIGHT, COMPLETE = 1, 2, 3
RUN_ID = bytes(range(16))
GROUP = 0xAB54A98CEB1F0AD2
MS = 1_000_000


def fnv(data: bytes) -> int:
    """FNV-1a, 64 bit."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return value


def bucket_id(index: int) -> int:
    """The identity of the bucket that `write_training` numbers so."""
    return fnv(b"bucket %d" % index)


def record_dtype(order: str = "<") -> np.dtype[Any]:
    """A record without overlapping fields; text is written through its bytes."""
    return np.dtype(
        [
            ("word", order + "u8"),
            ("kind", order + "u2"),
            ("dtype", "u1"),
            ("reduce_op", "u1"),
            ("flags", order + "u4"),
            ("group", order + "u8"),
            ("sequence", order + "u8"),
            ("reference", order + "u8"),
            ("bytes", order + "u8"),
            ("step", order + "u4"),
            ("module", order + "u4"),
            ("index", order + "u4"),
            ("thread", order + "u4"),
            ("times", order + "i8", (8,)),
        ]
    )


def header_page(order: str = "<", **fields: Any) -> bytearray:
    """The header page. `fields` override what a sound header has."""
    header: dict[str, Any] = {
        "magic": b"DDPTRACE",
        "major": 1,
        "minor": 0,
        "byte_order": 0x01020304,
        "header_bytes": HEADER_BYTES,
        "record_bytes": RECORD_BYTES,
        "capacity": 64,
        "pid": 4242,
        "rank": 0,
        "world_size": 1,
        "run_id": RUN_ID,
        "monotonic_ns": 1_000_000_000,
        "wall_ns": 1_700_000_000_000_000_000,
        "clock_name": b"CLOCK_MONOTONIC",
        "clock_identity": b"one clock",
        "tickets": 0,
        "overwritten": 0,
        "skipped": 0,
        "dropped": 0,
        "closed": 1,
        "heartbeat_ns": 0,
        "ended": 0,
        **fields,
    }
    places = {
        "major": ("u2", 8),
        "minor": ("u2", 10),
        "byte_order": ("u4", 12),
        "header_bytes": ("u4", 16),
        "record_bytes": ("u4", 20),
        "capacity": ("u8", 24),
        "pid": ("u8", 32),
        "rank": ("u4", 40),
        "world_size": ("u4", 44),
        "monotonic_ns": ("i8", 64),
        "wall_ns": ("i8", 72),
        "tickets": ("u8", 256),
        "overwritten": ("u8", 320),
        "skipped": ("u8", 384),
        "dropped": ("u8", 448),
        "closed": ("u8", 512),
        "heartbeat_ns": ("i8", 576),
        "ended": ("u8", 640),
    }
    page = bytearray(HEADER_BYTES)
    for name, offset, size in (
        ("magic", 0, 8),
        ("run_id", 48, 16),
        ("clock_name", 80, 32),
        ("clock_identity", 112, 64),
    ):
        page[offset : offset + size] = header[name][:size].ljust(size, b"\0")
    for name, (form, offset) in places.items():
        raw = np.array([header[name]], order + form).tobytes()
        page[offset : offset + len(raw)] = raw
    return page


class RankWriter:
    """Collects one rank's records, then writes its files as the native recorder would leave them."""

    def __init__(
        self, rank: int = 0, world_size: int = 1, *, capacity: int = 1024, order: str = "<", **header: Any
    ):
        self.rank, self.world_size, self.capacity, self.order = rank, world_size, capacity, order
        self.header = header
        self.records: list[np.ndarray[Any, Any]] = []
        self.looks: list[Look] = []
        self.sidecar: dict[str, Any] = {
            "format": "ddptrace",
            "schema_version": 1,
            "rank": rank,
            "world_size": world_size,
            "host": f"host{rank}",
            "torch": "2.13.0",
            "groups": [
                {"id": f"{GROUP:016x}", "name": "0", "backend": "gloo", "ranks": list(range(world_size))}
            ],
            "modules": [],
            "buckets": [],
        }

    def add(
        self,
        kind: int,
        *,
        times: tuple[int, ...] = (),
        state: int = COMPLETE,
        text: bytes = b"",
        **fields: Any,
    ) -> int:
        """Add a record and return its ticket."""
        record = np.zeros((), record_dtype(self.order))
        ticket = len(self.records)
        record["word"] = (ticket + 1) << 2 | state
        record["kind"] = kind
        for name, value in fields.items():
            record[name] = value
        record["times"][: len(times)] = times
        if text:
            raw = bytearray(record.tobytes())
            offset = 64 if kind in (ERROR, CONNECTION) else 96
            raw[offset : offset + len(text)] = text
            record = np.frombuffer(bytes(raw), record_dtype(self.order))[0]
        self.records.append(record)
        return ticket

    def bucket(
        self, sequence: int, enqueued: int, started: int, ended: int, *, reference: int = 7, **fields: Any
    ) -> int:
        """Add a bucket record; it was ready when it was enqueued."""
        record = {"group": GROUP, "bytes": 4_000_000, "dtype": 1, "reduce_op": 1, "step": sequence, **fields}
        return self.add(
            BUCKET,
            times=(enqueued, enqueued, started, ended),
            sequence=sequence,
            reference=reference,
            **record,
        )

    def backward(self, step: int, begin: int, finalize_begin: int, finalize_end: int, **fields: Any) -> int:
        """Add a backward record."""
        return self.add(BACKWARD, times=(begin, begin, finalize_begin, finalize_end), step=step, **fields)

    def step(self, step: int, wait_begin: int, begin: int, end: int, **fields: Any) -> int:
        """Add a step record."""
        return self.add(STEP, times=(wait_begin, begin, end), step=step, **fields)

    def collective(self, name: str, started: int, ended: int, **fields: Any) -> int:
        """Add a record of another Gloo operation."""
        raw = name.encode()[:32]
        return self.add(COLLECTIVE, times=(started, ended), text=raw, reference=fnv(name.encode()), **fields)

    def connection_name(self, name: str) -> None:
        """Add the name of a connection in parts of 64 bytes."""
        raw = name.encode()
        for index in range((len(raw) + 63) // 64):
            part = raw[64 * index : 64 * index + 64]
            self.add(CONNECTION, text=part, reference=fnv(raw), index=index, flags=NAME_FLAG)

    def reading(self, name: str, at: int, **readings: int | None) -> None:
        """Add a reading of a connection; what is not given is not available."""

        def word(key: str) -> int:
            value = readings.get(key)
            return -1 if value is None else value

        def halves(low: str, high: str) -> int:
            value = (word(low) & 0xFFFFFFFF) | (word(high) & 0xFFFFFFFF) << 32
            return value - 2**64 if value >= 2**63 else value

        self.add(
            CONNECTION,
            reference=fnv(name.encode()),
            bytes=word("retransmitted_bytes") & (2**64 - 1),
            sequence=halves("unacked", "notsent_bytes") & (2**64 - 1),
            group=halves("total_rto", "total_rto_ms") & (2**64 - 1),
            module=word("mss") & 0xFFFFFFFF,
            index=(word("backoff") & 0xFFFF) | (word("timeouts") & 0xFFFF) << 16,
            times=(
                *(at, word("bytes_sent"), word("bytes_acked"), word("bytes_received")),
                word("busy_us"),
                halves("segments", "retransmitted"),
                halves("dsack_dups", "out_of_order"),
                halves("min_rtt_us", "rtt_us"),
            ),
        )

    def usage(
        self,
        step: int,
        at: int,
        thread_cpu: int = -1,
        run_delay: int = -1,
        process_cpu: int = -1,
        collector: int = -1,
        load_milli: int = -1,
        major_faults: int = -1,
        **fields: Any,
    ) -> int:
        """Add the readings at the end of a step's pass; -1 = not available."""
        readings = (at, thread_cpu, run_delay, process_cpu, collector, major_faults, -1, load_milli)
        return self.add(USAGE, times=readings, step=step, **fields)

    def phase(self, name: str, begin: int, end: int, **fields: Any) -> int:
        """Add a record of a named part of the program."""
        raw = name.encode()[:32]
        return self.add(PHASE, times=(begin, end), text=raw, reference=fnv(name.encode()), **fields)

    def look(self, at: int, line: At | Sequence[At], call: str = "", on_disk: bool = False) -> None:
        """One look at the main thread's stack: the line of own code, or several, the outermost first; what the
        innermost one called, and whether it waited for a disk."""
        lines = (line,) if is_line(line) else tuple(line)
        self.looks.append((at, lines, call, on_disk))

    def sound_steps(self, steps: Iterable[int], begin: int = 100 * MS, **bucket: Any) -> None:
        """Add steps of 60 ms, one each 100 ms from `begin` on, whose one bucket ends before its pass does."""
        for step in steps:
            now = begin + step * 100 * MS
            self.step(step, now, now, now + 60 * MS)
            self.backward(step, now, now + 50 * MS, now + 53 * MS)
            self.bucket(step, now + 45 * MS, now + 46 * MS, now + 52 * MS, **bucket)

    def error(self, ticket: int, text: str) -> None:
        """Add the text of an operation's error in parts of 64 bytes."""
        raw = text.encode()
        for index in range(0, max(1, (len(raw) + 63) // 64)):
            self.add(ERROR, text=raw[64 * index : 64 * index + 64], reference=ticket, index=index)

    def write(self, folder: Path, *, sidecar: bool = True, name: str = "") -> Path:
        """Write the files; a record whose slot is taken replaces the older one."""
        folder.mkdir(parents=True, exist_ok=True)
        slots = np.zeros(self.capacity, record_dtype(self.order))
        for ticket, record in enumerate(self.records):
            slots[ticket % self.capacity] = record
        header = {
            "rank": self.rank,
            "world_size": self.world_size,
            "capacity": self.capacity,
            "tickets": len(self.records),
            "overwritten": max(0, len(self.records) - self.capacity),
            **self.header,
        }
        path = folder / (name or f"rank_{self.rank}.ddptrace")
        path.write_bytes(bytes(header_page(self.order, **header)) + slots.tobytes())
        if sidecar:
            path.with_suffix(".json").write_text(json.dumps(self.sidecar), encoding="utf-8")
        if self.looks:
            run_id = bytes(self.header.get("run_id", RUN_ID))
            path.with_suffix(".lines").write_text(
                json.dumps(looks_file(run_id, self.looks)), encoding="utf-8"
            )
        return path


def write_training(
    folder: Path,
    *,
    world_size: int = 2,
    steps: int = 12,
    buckets: int = 2,
    compute_ms: float = 20.0,
    data_wait_ms: float = 1.0,
    wire_ms: float = 1.0,
    queue_ms: float = 0.5,
    late_ms: dict[int, float] | None = None,
    data_late_ms: dict[int, float] | None = None,
    step_records: bool = True,
    clocks: dict[int, tuple[str, int, int]] | None = None,
    jitter_ms: float = 0.0,
    seed: int = 0,
) -> list[RankWriter]:
    """Write the traces of a training whose every time is known.

    In each step a rank waits for data, computes forward and backward, and hands over its buckets evenly
    over the last half of its compute. A bucket starts `queue_ms` after every rank brought it and after the
    one before it, and takes `wire_ms`. The next step begins when the last bucket has ended. `late_ms` adds
    compute to a rank. `clocks` gives a rank another clock: identity, offset of its monotonic clock in ns, and
    error of its wall clock in ns.
    """
    late_ms, data_late_ms, clocks = late_ms or {}, data_late_ms or {}, clocks or {}
    random = np.random.default_rng(seed)
    writers = []
    for rank in range(world_size):
        identity, offset, wall_error = clocks.get(rank, ("one clock", 0, 0))
        writer = RankWriter(
            rank,
            world_size,
            clock_identity=identity.encode(),
            monotonic_ns=1_000_000_000 + offset,
            wall_ns=1_700_000_000_000_000_000 + wall_error,
        )
        names = [f"layer{index}.weight" for index in range(buckets)]
        writer.sidecar["modules"] = [
            {
                "index": 0,
                "name": "Net",
                "group": f"{GROUP:016x}",
                "parameters": [{"name": name} for name in names],
            }
        ]
        writer.sidecar["buckets"] = [
            {
                "id": f"{bucket_id(index):016x}",
                "module": 0,
                "index": index,
                "parameters": [index],
                "dtype": "float32",
            }
            for index in range(buckets)
        ]
        writers.append(writer)
    now, free = 2_000_000_000, 0
    for step in range(steps):
        waits = [int((data_wait_ms + data_late_ms.get(rank, 0.0)) * MS) for rank in range(world_size)]
        noise = random.normal(0.0, jitter_ms, world_size) if jitter_ms else np.zeros(world_size)
        work = [
            int(max(1.0, compute_ms + late_ms.get(rank, 0.0) + noise[rank]) * MS)
            for rank in range(world_size)
        ]
        enqueued = [
            [
                now + waits[rank] + work[rank] * (buckets + index + 1) // (2 * buckets)
                for index in range(buckets)
            ]
            for rank in range(world_size)
        ]
        spans = []
        for index in range(buckets):
            start = max([*(times[index] for times in enqueued), free]) + int(queue_ms * MS)
            free = start + int(wire_ms * MS)
            spans.append((start, free))
        for rank, writer in enumerate(writers):
            shift = clocks.get(rank, ("", 0, 0))[1]
            begin = now + waits[rank]
            done = begin + work[rank]
            for index, (start, end) in enumerate(spans):
                writer.bucket(
                    step * buckets + index,
                    enqueued[rank][index] + shift,
                    start + shift,
                    end + shift,
                    reference=bucket_id(index),
                    step=step,
                )
            writer.backward(step, begin + work[rank] // 3 + shift, done + shift, max(done, free) + shift)
            if step_records:
                writer.step(step, now + shift, begin + shift, max(done, free) + shift)
        now = max(free, *(now + waits[rank] + work[rank] for rank in range(world_size)))
    for writer in writers:
        writer.write(folder)
    return writers
