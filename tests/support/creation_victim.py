"""A process that makes one recorder after the other, until somebody kills it; and what it then left."""

from __future__ import annotations

import random
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch.distributed as dist

import pyddpdiag
from pyddpdiag.trace.reader import read_trace
from support.commands import ran
from support.forks import context


def make_recorders(folder: str) -> None:
    """`folder/<n>` for n = 0, 1, ...: a recorder each, closed at once."""
    _join(folder)
    number = 0
    while True:
        pyddpdiag.Recorder(Path(folder, str(number)), capacity_mb=2).close()
        number += 1


def _join(folder: str) -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(folder + "/store", 1))


def start(folder: Path) -> BaseProcess:
    """The process, when it has made some."""
    process = context().Process(target=make_recorders, args=(str(folder),), daemon=True)
    process.start()
    deadline = time.monotonic() + 100
    while not (folder / "2").exists():
        if not process.is_alive() or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"no recorder was made; exit code {process.exitcode}")
        time.sleep(0.001)
    return process


LINES = {"rank_0.lines", "rank_0.lines.tmp"}
"""There if the process was looked at in time."""


def kill_and_check(folder: Path, seed: int) -> tuple[int, bool]:
    """Kill it at a random moment. How many recorders it had made, and whether its last trace was never published."""
    process = start(folder)
    time.sleep(random.Random(seed).uniform(0.0, 0.05))
    process.kill()
    process.join(30)
    runs = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: int(path.name))
    for run in runs[:-1]:
        assert {path.name for path in run.iterdir()} - LINES == {"rank_0.ddptrace", "rank_0.json"}
    left = {path.name for path in runs[-1].iterdir()} - LINES
    assert left <= {"rank_0.ddptrace", "rank_0.json", "rank_0.json.tmp"}
    if "rank_0.ddptrace" not in left:
        assert not left
        return len(runs), True
    # Whoever finds the trace finds all of it.
    trace = read_trace(runs[-1] / "rank_0.ddptrace")
    assert trace.header.rank == 0
    size, whole = (runs[-1] / "rank_0.ddptrace").stat().st_size, 4096 + 2 * 2**20
    # One that is closed is cut to what it holds.
    assert size == whole or (trace.header.closed and 4096 <= size < whole)
    return len(runs), False


AGAIN = """
import sys
import torch.distributed as dist
import pyddpdiag
folder, run, overwrite = sys.argv[1:]
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(folder + "/store again", 1))
pyddpdiag.Recorder(run, capacity_mb=2, overwrite=overwrite == "True").close()
"""


def run_again(folder: Path, *, overwrite: bool) -> None:
    """Another run into the last folder: nothing that the killed one left is in its way, and nothing stays."""
    last = max((path for path in folder.iterdir() if path.is_dir()), key=lambda path: int(path.name))
    command = [sys.executable, "-c", AGAIN, str(folder), str(last), str(overwrite)]
    done = ran(*command)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in last.iterdir()) == ["rank_0.ddptrace", "rank_0.json"]
    assert read_trace(last / "rank_0.ddptrace").header.closed
