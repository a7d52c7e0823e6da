"""A process that keeps writing a ring until it is stopped: `python live_writer.py PATH CAPACITY`.

Every field of a record is made from its ticket, so that a reader can tell a whole record from a mixed one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.trace_writer import BUCKET, COMPLETE, WRITING, record_dtype


def write(path: Path, capacity: int) -> None:
    """Go round the ring for ever."""
    slots = np.memmap(path, record_dtype(), "r+", 4096, (capacity,))
    ticket = 0
    while True:
        slot = slots[ticket % capacity]
        slot["word"] = (ticket + 1) << 2 | WRITING
        slot["kind"], slot["sequence"], slot["bytes"] = BUCKET, ticket, ticket
        slot["times"][:4] = ticket + 1
        slot["reference"] = ticket
        slot["word"] = (ticket + 1) << 2 | COMPLETE
        ticket += 1


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
