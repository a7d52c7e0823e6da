"""A run looked at from outside while it runs: the native recorder's clock and process are the reader's."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from support.hooked import backward
from support.models import branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.system import processes
from pyddpdiag.system.clock import clock_identity, monotonic_ns
from pyddpdiag.trace.header import Header
from pyddpdiag.trace.now import is_own_clock
from pyddpdiag.trace.run import open_run

LATE_S = 1.5


def _wait_for_each_other(rank: int, world_size: int, folder: Path) -> RunReport | None:
    """In the third step rank 1 comes so much later, and looks at the run just before."""
    assert world_size == 2
    report = None
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(folder / "run") as recorder:
        recorder.attach(ddp)
        for step in range(3):
            if step == 2 and rank == 1:
                time.sleep(LATE_S)
                report = load_report(folder / "run")
                _compare_with_what_is_true(folder / "run")
            backward(ddp, rank, step)
    return report


def _compare_with_what_is_true(folder: Path) -> None:
    trace = open_run(folder).ranks[1]
    header: Header = trace.header
    assert header.clock_identity == clock_identity() != ""
    assert is_own_clock(header)
    assert header.monotonic_ns < trace.newest_ns < monotonic_ns()
    assert header.pid == os.getpid()
    sidecar = json.loads(trace.path.with_suffix(".json").read_bytes())
    assert sidecar["process_started_s"] == trace.sidecar.process_started_s == processes.started_at()
    assert sidecar["process_namespace"] == trace.sidecar.process_namespace == processes.namespace()


def test_a_rank_that_waits_is_seen_to_wait(tmp_path: Path) -> None:
    _, report = run_ranks(_wait_for_each_other, 2, tmp_path, tmp_path)
    assert report is not None
    assert [rank.process for rank in report.ranks] == ["running", "running"]
    waiting = [operation for operation in report.in_flight_operations if operation.rank == 0]
    # Rank 0 may have been as slow to get there; at least half of the time it was waiting.
    assert waiting and max(operation.open_ms for operation in waiting) >= 500 * LATE_S
    over = load_report(tmp_path / "run")
    assert over.in_flight_operations == ()
    assert {rank.process for rank in over.ranks} <= {"running", "dead"}
