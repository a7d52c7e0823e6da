"""Sums a buffer over the ranks by MPI_Allreduce, in place, each time it is told to: mpi_allreduce.cpp from Python.

Usage: mpirun -n RANKS python mpi_allreduce.py FOLDER BYTES IN_A_ROW
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

COMPUTES_S = 0.01  # as programs::compute() in ranks.hpp


def main() -> None:
    """Runs rounds until the pipe ends."""
    from mpi4py import MPI  # which begins MPI

    folder, size, in_a_row = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ranks = MPI.COMM_WORLD
    values = np.zeros(size // 4, dtype=np.float32)
    with Path(folder, f"go.{ranks.rank}").open("rb", buffering=0) as go:
        while go.read(1):
            until = time.perf_counter() + COMPUTES_S
            while time.perf_counter() < until:
                pass
            ranks.Barrier()
            at = time.perf_counter()
            for _ in range(in_a_row):
                ranks.Allreduce(MPI.IN_PLACE, values)
            end = time.perf_counter()
            began = ranks.allreduce(at, MPI.MIN)
            if ranks.rank == 0:
                print(f"{end - began:.9f}", flush=True)


if __name__ == "__main__":
    main()
