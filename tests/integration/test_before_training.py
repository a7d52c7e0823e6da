"""A rank that hangs before it trains, under `pyddpdiag run`: which one, and its line, meanwhile and afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from train_support import USUAL, finish, started, wait_for

from pyddpdiag.errors import TraceError
from pyddpdiag.live.hang import hang
from pyddpdiag.pipeline import load_report

SCRIPT = """
import subprocess, sys
from datetime import timedelta

def unpack():
    # A process that a rank starts has its variables and is not that rank.
    subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE).wait()  # HANGS

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

way = sys.argv[1]
dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[2])))
if way == "ends":
    sys.exit()
if dist.get_rank() == 1 and way == "barrier":
    unpack()
dist.barrier()  # WAITS
ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
if dist.get_rank() == 1 and way == "pass":
    unpack()
for _ in range(12):
    ddp(torch.ones(2, 2)).sum().backward()
"""
HANG_S = 30
"""Until the others give up. The test asks before that, and the ranks load torch before it begins."""


def line_of(comment: str) -> str:
    place = next(place for place, line in enumerate(SCRIPT.splitlines(), 1) if comment in line)
    return f"job.py:{place}"


def command(folder: Path, *way: str) -> list[str]:
    (folder / "job.py").write_text(SCRIPT, encoding="utf-8")
    run = ("run", "--trace", "run", "--nproc", "2", "job.py")
    return [sys.executable, "-m", "pyddpdiag", *run, *way]


def lines(folder: Path) -> dict[int, str]:
    """By rank, where `hang` sees it now."""
    try:
        return {rank.rank: rank.line for rank in hang(folder, stacks=False).ranks}
    except TraceError:
        return {}


@pytest.mark.parametrize("way", ["barrier", "pass"])
def test_a_rank_that_hangs_before_it_trains_is_named_with_its_line(tmp_path: Path, way: str) -> None:
    run = tmp_path / "run"
    with started(command(tmp_path, way, str(HANG_S)), tmp_path, **USUAL, USE_LIBUV="0") as process:
        wait_for(lambda: lines(run).get(1) == line_of("HANGS"), 240, "rank 1 is seen where it hangs")
        code, _, err = finish(process)
    assert code, err
    found = load_report(run).verdict.findings[0]
    assert (found.kind, found.rank, found.where) == ("rank_stuck", 1, line_of("HANGS")), err
    waits = f"rank 0 waited for it in barrier ({line_of('WAITS')})" if way == "barrier" else "in bucket"
    assert waits in found.message and line_of("HANGS") in err, err


def test_a_run_that_came_to_train_or_needs_no_ddp_leaves_no_note(tmp_path: Path) -> None:
    for way, left in (("trains", True), ("ends", False)):
        with started(command(tmp_path, way, "600"), tmp_path, **USUAL, USE_LIBUV="0") as process:
            code, _, err = finish(process)
        assert code == 0, err
        assert not list(tmp_path.glob("run/*.start"))
        assert (tmp_path / "run").exists() == left, err
        if left:
            report = load_report(tmp_path / "run")
            assert not [one for one in report.verdict.findings if one.kind == "rank_stuck"]
            for path in (tmp_path / "run").iterdir():
                path.unlink()
            (tmp_path / "run").rmdir()
