"""Files that would cost much time or memory if they were believed."""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pyddpdiag.trace.sidecar import SIDECAR_LIMIT
from support.attack import survive
from support.trace_writer import COMPLETE, header_page, record_dtype, write_training

# Of three bytes each in the file, and sixty in memory.
MANY = b'{"schema_version": 1, "groups": [' + b"{}," * 1_000_000 + b"{}]}"


def sparse(path: Path, capacity: int, places: list[int], **header: int) -> None:
    """A trace of a huge ring, with complete records in some slots and holes everywhere else."""
    record = np.zeros(1, record_dtype())
    record["kind"] = 1
    with path.open("wb") as file:
        file.write(header_page(capacity=capacity, tickets=2**40, **header))
        for place in places:
            record["word"] = (place + 1) << 2 | COMPLETE
            file.seek(4096 + 128 * place)
            file.write(record.tobytes())
        file.truncate(4096 + 128 * capacity)
    blocks = getattr(path.stat(), "st_blocks", None)
    if blocks is None or blocks * 512 > 2**28:
        path.unlink()
        pytest.skip("no sparse files on this file system")


def full_sidecars(ranks: int, values: int) -> Iterator[bytes]:
    """Sidecars as full as they may be, another one for each rank."""
    names = [{"name": f"RANK.{number}"} for number in range(values // 2)]
    modules = [
        {"index": at, "name": "N", "parameters": names[at * 50_000 : (at + 1) * 50_000]} for at in range(4)
    ]
    text = json.dumps({"schema_version": 1, "host": "host RANK", "modules": modules}, separators=(",", ":"))
    assert len(text) < SIDECAR_LIMIT
    for rank in range(ranks):
        yield text.replace("RANK", str(rank)).encode()


def cut_while_read(folder: Path, seconds: float) -> int:
    """Reports of a run whose trace is cut and filled again all the time; how many reports that were."""
    write_training(folder, steps=300, buckets=2)
    path = folder / "rank_0.ddptrace"
    whole = path.read_bytes()
    stop = threading.Event()

    def cut() -> None:
        random = np.random.default_rng(1)
        while not stop.is_set():
            os.truncate(path, int(random.integers(0, len(whole))))
            with path.open("r+b") as file:
                file.write(whole)

    thread = threading.Thread(target=cut)
    thread.start()
    reports = 0
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            reports += survive(folder) is not None
    finally:
        stop.set()
        thread.join()
    assert survive(folder)
    return reports
