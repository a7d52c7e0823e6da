"""Many records at once: a large training's traces, written without a loop over records."""

from pathlib import Path

import numpy as np

from support.trace_writer import BACKWARD, BUCKET, COMPLETE, GROUP, STEP, header_page, record_dtype

BUCKETS = 10
PER_STEP = BUCKETS + 2
STEP_NS = 40_000_000


def write_bulk(folder: Path, *, ranks: int = 8, records: int = 1_000_000, late_ns: int = 5_000_000) -> int:
    """Write `records` records of `ranks` ranks; the last rank is late. Returns how many were written."""
    folder.mkdir(parents=True, exist_ok=True)
    steps = records // (ranks * PER_STEP)
    begin = 2_000_000_000 + np.arange(steps, dtype=np.int64) * STEP_NS
    for rank in range(ranks):
        random = np.random.default_rng(rank)
        late = late_ns if rank == ranks - 1 else 0
        table = np.zeros((steps, PER_STEP), record_dtype())
        table["step"] = np.arange(steps)[:, None]
        for index in range(BUCKETS):
            bucket = table[:, index]
            enqueued = begin + 10_000_000 + index * 1_000_000 + late + random.integers(0, 200_000, steps)
            # The same on every rank: nobody starts before the last one came.
            start = begin + 10_000_000 + index * 1_000_000 + late_ns + 400_000
            bucket["kind"], bucket["dtype"], bucket["reduce_op"] = BUCKET, 1, 1
            bucket["group"], bucket["reference"] = GROUP, 0x1234567800000000 + index
            bucket["sequence"] = np.arange(steps) * BUCKETS + index
            bucket["bytes"], bucket["index"] = 4_000_000, index
            bucket["times"][:, 0] = bucket["times"][:, 1] = enqueued
            bucket["times"][:, 2] = start
            bucket["times"][:, 3] = start + 900_000 + random.integers(0, 50_000, steps)
        last = table["times"][:, BUCKETS - 1, 3]
        backward, step = table[:, BUCKETS], table[:, BUCKETS + 1]
        backward["kind"] = BACKWARD
        backward["times"][:, 0] = begin + 9_000_000
        backward["times"][:, 2] = begin + 20_000_000 + late
        backward["times"][:, 3] = last
        step["kind"] = STEP
        step["times"][:, 0], step["times"][:, 1], step["times"][:, 2] = begin, begin + 500_000, last + 100_000
        flat = table.ravel()
        flat["word"] = (np.arange(len(flat), dtype=np.uint64) + np.uint64(1)) << np.uint64(2) | np.uint64(
            COMPLETE
        )
        page = header_page(rank=rank, world_size=ranks, capacity=len(flat), tickets=len(flat))
        with (folder / f"rank_{rank}.ddptrace").open("wb") as file:
            file.write(page)
            flat.tofile(file)
    return steps * PER_STEP * ranks
