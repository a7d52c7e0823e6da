"""Files that would cost much: the time and memory of the report on each, in a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attack import length
from support.costly import MANY, cut_while_read, full_sidecars, sparse
from support.trace_writer import RankWriter

ROOT = Path(__file__).parents[2]
SPARSE_RANKS = 16
SIDECAR_RANKS = 64

# Its exit code, and the most memory it had: not what getrusage says, which begins with the parent's size.
PROGRAM = """
import json, sys
from pyddpdiag.cli import main
code = main(["report", sys.argv[1]])
try:
    with open("/proc/self/status") as status:
        [peak] = [1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM")]
except OSError:
    import psutil
    peak = getattr(psutil.Process().memory_info(), "peak_wset", 0)
print(json.dumps({"code": code, "peak": peak}), file=sys.stderr)
"""


def sparse_ranks(folder: Path) -> None:
    for rank in range(SPARSE_RANKS):
        places = list(range(rank, 2**26, 2**20))
        sparse(folder / f"rank_{rank}.ddptrace", 2**26, places, rank=rank, world_size=SPARSE_RANKS)


def ranks(folder: Path) -> list[Path]:
    sidecars = []
    for rank in range(SIDECAR_RANKS):
        writer = RankWriter(rank, SIDECAR_RANKS)
        writer.bucket(0, 1, 2, 3)
        sidecars.append(writer.write(folder, sidecar=False).with_suffix(".json"))
    return sidecars


def full(folder: Path) -> None:
    for path, content in zip(ranks(folder), full_sidecars(SIDECAR_RANKS, 300_000), strict=True):
        path.write_bytes(content)


def small_objects(folder: Path) -> None:
    for path in ranks(folder):
        path.write_bytes(MANY)


def links(folder: Path) -> None:
    first, *others = ranks(folder)
    [content] = full_sidecars(1, 300_000)
    first.write_bytes(content)
    for path in others:
        os.link(first, path)


@pytest.mark.parametrize("make", [sparse_ranks, full, small_objects, links])
def test_report_on_costly_files(
    tmp_path: Path, make: Callable[[Path], None], figures: Callable[[object], None]
) -> None:
    make(tmp_path)
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        check=True,
    )
    took = time.monotonic() - begin
    measured = json.loads(done.stderr.splitlines()[-1])
    figures(f"{took:.1f} s from start to end, {measured['peak'] / 1e6:.0f} MB")
    assert measured["code"] in (0, 1, 2) and "Traceback" not in done.stderr
    assert measured["peak"] < 512 * 2**20


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cuts no file that another process has open")
def test_trace_that_is_cut_while_it_is_read(tmp_path: Path, figures: Callable[[object], None]) -> None:
    seconds = min(60.0, length().seconds)
    figures(f"{cut_while_read(tmp_path, seconds)} reports in {seconds:.0f} s")
