"""A long run: what the ring has overwritten is left as sums over intervals of steps, and the report tells of it."""

import contextlib
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import backward
from support.models import branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.analyse.history import rank_history
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.account import PARTS
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

WHOLE = 40
LONG = 400
KILLED = 320
LATE_S = 0.025


def _whole_job(rank: int, _: int, folder: str) -> None:
    """Accumulation, another collective and a wait for data in each step; nothing is overwritten."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(Path(folder), parameter_interval=0) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(WHOLE)):
            for part in range(2):
                with contextlib.nullcontext() if part else ddp.no_sync():
                    backward(ddp, rank, 2 * step + part)
            dist.all_reduce(torch.ones(1))
            time.sleep(0.001 * rank)


def _long_job(rank: int, _: int, folder: str, steps: int, killed: int) -> None:
    """Rank 1 sleeps in the first part of the run, whose records the smallest of rings overwrites."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    recorder = pyddpdiag.Recorder(Path(folder), parameter_interval=0, capacity_mb=0.0625)
    recorder.attach(ddp)
    for step in recorder.steps(range(LONG)):
        if rank == 1 and step < LONG * 3 // 4:
            time.sleep(LATE_S)
        backward(ddp, rank, step)
        if step + 1 == steps and rank == killed:
            # Twice a second the recorder's own thread looks.
            time.sleep(1.2)
            os._exit(9)
        if step + 1 == steps:
            break
    recorder.close()


def test_sums_over_an_interval_are_those_of_the_tables(tmp_path: Path) -> None:
    run_ranks(_whole_job, 2, tmp_path, str(tmp_path / "run"))
    run = open_run(tmp_path / "run")
    view = RunView(run)
    table = view.steps
    for trace in run.ranks:
        history = rank_history(trace, 2**62)
        assert history.steps.tolist() == [16, 16, 8]
        mine = table.take(table.rank == trace.rank)
        for name, column in (
            ("own", mine.own_ms),
            ("exposed", mine.exposed_ms),
            ("data_wait", mine.data_wait_ms),
            ("collectives", mine.other_ms),
        ):
            wanted = np.add.reduceat(np.nan_to_num(column), [0, 16, 32])
            assert history.sums[name] / 1e6 == pytest.approx(wanted, abs=1e-6), name
        usage = view.intake.ranks[run.ranks.index(trace)].usage
        for name, column in (("thread_cpu", usage.cpu), ("run_delay", usage.run_delay)):
            wanted = np.add.reduceat(np.nan_to_num(column), [0, 16, 32])
            assert history.sums[name] / 1e6 == pytest.approx(wanted, abs=1e-6), name
        walls = np.add.reduceat(mine.wall_ms, [0, 16, 32])
        assert (history.end - history.begin - history.between) / 1e6 == pytest.approx(walls, abs=1e-6)


def test_a_rank_that_was_late_before_the_records_begin_is_named(tmp_path: Path) -> None:
    run_ranks(_long_job, 2, tmp_path, str(tmp_path / "run"), LONG, -1)
    report = load_report(tmp_path / "run")
    # A busy machine may hold rank 0 up in some interval: then this begins after it.
    late = [
        one for one in report.verdict.findings if one.kind == "late_rank" and (one.since_step or 0) < LONG / 4
    ]
    assert [(one.rank, one.cause) for one in late] == [(1, "blocked")], report.verdict.findings
    assert late[0].cost_s == pytest.approx(LATE_S * LONG * 3 / 4, rel=0.4)
    assert any("there are only sums" in text for text in report.warnings)
    for each in report.account:
        assert sum(each.part(name) for name in PARTS) == pytest.approx(each.wall_s, rel=0.01)
    # The steps' time is known, where nearly all of it was not before.
    slept, waited = report.account[1].blocked_s, report.account[0].rank_wait_s
    assert slept > 0.5 * LATE_S * LONG * 3 / 4 and waited > 0.5 * LATE_S * LONG * 3 / 4


def test_sums_outlive_a_process_that_ends_without_a_word(tmp_path: Path) -> None:
    run_ranks(_long_job, 2, tmp_path, str(tmp_path / "run"), KILLED, 1, lost=frozenset({1}))
    run = open_run(tmp_path / "run")
    history = rank_history(run.ranks[1], 2**62)
    # The last interval is not full, and in no file; its records are.
    first = int(run.ranks[1].of_kind(Kind.STEP)["step"].min())
    assert history.length * len(history) >= first
    assert history.first[0] == 0
    assert "late_rank" in {one.kind for one in load_report(tmp_path / "run").verdict.findings}
