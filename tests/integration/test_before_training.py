"""A rank that hangs before it trains, under `pyddpdiag run`: which one, and its line, meanwhile and afterwards."""

import sys
from contextlib import ExitStack
from pathlib import Path

from train_support import USUAL, ended, finish, started, wait_for

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


def test_a_rank_that_hangs_before_it_trains_is_named_with_its_line(tmp_path: Path) -> None:
    waits = {"barrier": f"rank 0 waited for it in barrier ({line_of('WAITS')})", "pass": "in bucket"}
    # At once: both take that long until the others give up.
    with ExitStack() as stack:
        processes = {}
        for way in waits:
            (tmp_path / way).mkdir()
            starting = started(command(tmp_path / way, way, str(HANG_S)), tmp_path / way, **USUAL)
            processes[way] = stack.enter_context(starting)
        seen: set[str] = set()

        def all_seen() -> bool:
            seen.update(way for way in waits if lines(tmp_path / way / "run").get(1) == line_of("HANGS"))
            return len(seen) == len(waits)

        wait_for(all_seen, 240, "rank 1 is seen where it hangs")
        ends = {way: finish(process) for way, process in processes.items()}
    for way, words in waits.items():
        code, _, err = ends[way]
        assert code, err
        found = load_report(tmp_path / way / "run").verdict.findings[0]
        assert (found.kind, found.rank, found.where) == ("rank_stuck", 1, line_of("HANGS")), err
        assert words in found.message and line_of("HANGS") in err, err


def test_a_run_that_needs_no_ddp_leaves_no_note(tmp_path: Path) -> None:
    """Nor does one that comes to train: test_unchanged_scripts.py."""
    code, err = ended(*command(tmp_path, "ends", "600"), cwd=tmp_path)
    assert code == 0, err
    assert not (tmp_path / "run").exists(), err
