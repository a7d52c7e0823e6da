"""A second run of the same script records beside the first one, in a folder on which its ranks agree."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.commands import ran
from support.models import branches
from support.ports import own_port
from support.ranks import run_ranks
from support.restarted import ENDS_IN, STEPS
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.cli import main
from pyddpdiag.errors import TraceExistsError
from pyddpdiag.integrations.recorded_training import Session
from pyddpdiag.pipeline import load_report
from pyddpdiag.record import agreement
from pyddpdiag.trace.run import open_run

JOB = Path(__file__).resolve().parents[1] / "support" / "restarted.py"


def _run(_: int, __: int, folder: str, overwrite: bool) -> tuple[str, str, str]:
    """The README's three lines: the folder, the run's id, and what was said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        recorder = pyddpdiag.Recorder(folder, overwrite=overwrite, capacity_mb=1)
    with recorder:
        ddp = DistributedDataParallel(branches(torch.float32))
        recorder.attach(ddp)
        for batch in recorder.steps([torch.ones(2, 12)] * 3):
            ddp(batch).sum().backward()
    return str(recorder.folder), recorder.run_id, said.getvalue()


def test_each_run_of_the_same_lines_has_a_folder_on_all_ranks(tmp_path: Path) -> None:
    named = tmp_path / "runs" / "today"
    ids = []
    for number, expected in enumerate((named, named.with_name("today-2"), named.with_name("today-3"))):
        first, second = run_ranks(_run, 2, tmp_path, str(named), False)
        assert first[:2] == second[:2] and first[0] == str(expected)
        ids.append(first[1])
        line = f"pyddpdiag: '{named}' holds an earlier run; this one is recorded into '{expected}'.\n"
        assert (first[2], second[2]) == (line if number else "", "")
    read = [load_report(folder) for folder in sorted(named.parent.iterdir())]
    assert [report.run_id for report in read] == ids and len(set(ids)) == 3
    assert [[rank.steps for rank in report.ranks] for report in read] == [[3, 3]] * 3
    again = run_ranks(_run, 2, tmp_path, str(named), True)
    assert [found[0] for found in again] == [str(named)] * 2 and [found[2] for found in again] == ["", ""]
    assert load_report(named).run_id == again[0][1]
    assert len(list(named.parent.iterdir())) == 3


def _in_turn(rank: int, _: int, root: str, first: int) -> str:
    """Ranks with a disk of their own: `first` opens its recorder before the other one does."""
    folder = Path(root, f"disk-{rank}", "today")
    if rank != first:
        dist.barrier()
    try:
        with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
            return recorder.folder.name
    except TraceExistsError as error:
        return str(error)
    finally:
        if rank == first:
            dist.barrier()


def test_ranks_that_share_no_disk_agree_too(tmp_path: Path) -> None:
    taken = tmp_path / "disk-0" / "today"
    taken.mkdir(parents=True)
    (taken / "rank_0.ddptrace").touch()
    free_first = run_ranks(_in_turn, 2, tmp_path, str(tmp_path), 1)
    assert "rank 0: there is a trace already" in free_first[0] and free_first[1] == "today"
    # Now both hold one.
    assert run_ranks(_in_turn, 2, tmp_path, str(tmp_path), 0) == ["today-2"] * 2


def _others(_: int, __: int, folder: str) -> list[str]:
    """Recorders that a framework's callback opens, and `pyddpdiag run`, which reads the folder that it names."""
    found = []
    for recorded_by in ("lightning", "run"):
        try:
            session = Session(folder, {"capacity_mb": 1}, recorded_by)
        except TraceExistsError:
            found.append("exists")
        else:
            found.append(session.recorder.folder.name)
            session.close()
    return found


def test_what_others_open_for_the_script(tmp_path: Path) -> None:
    folder = tmp_path / "today"
    run_ranks(_run, 2, tmp_path, str(folder), False)
    assert run_ranks(_others, 2, tmp_path, str(folder)) == [["today-2", "exists"]] * 2


def test_a_restart_goes_on_beside_the_earlier_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --standalone or --rdzv-id, a launch has no id by which its restart could find what it recorded before."""
    folder = tmp_path / "run"
    run_ranks(_run, 2, tmp_path, str(folder), False)
    before = sorted(folder.rglob("*"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    done = ran(
        *(*torchrun, "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{own_port()}", str(JOB)),
        str(folder),
        cwd=tmp_path,
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            # In a store that outlives the restart, torch's own ranks may find the addresses of the ranks before them.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        timeout_s=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(folder.rglob("*")) == before
    newest, first = load_report(tmp_path / "run-2"), load_report(tmp_path / "run-2", attempt=0)
    assert newest.folder == str(tmp_path / "run-2" / "attempt-1")
    assert [rank.steps for rank in newest.ranks] == [STEPS] * 2
    assert "this is attempt 1, the newest; --attempt shows another: 0." in newest.warnings[0]
    assert newest.run_id != first.run_id
    # Rank 1 ended by itself; rank 0 only lost it.
    assert first.verdict.findings[0].rank == 1
    assert first.ranks[1].last_step == ENDS_IN
    assert main(["report", str(tmp_path / "run-2"), "--attempt", "2"]) == 2
    assert "there are: 0, 1" in capsys.readouterr().err
    for rank in open_run(tmp_path / "run-2").ranks:
        assert rank.sidecar.environment["TORCHELASTIC_RUN_ID"] == "none"


def _again(_: int, __: int, folder: str) -> list[str]:
    """The same script in two attempts that share a store; each names its recorders' folders."""
    found = []
    for attempt in ("0", "1"):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = attempt
        agreement._opened.clear()  # as in a new process
        for name in ("one", "two"):
            with pyddpdiag.Recorder(Path(folder, name), overwrite=True, capacity_mb=1) as recorder:
                found.append(str(recorder.folder.relative_to(folder).as_posix()))
    return found


def test_a_store_that_outlives_the_restart_does_not_bring_back_its_folder(tmp_path: Path) -> None:
    expected = ["one", "two", "one/attempt-1", "two/attempt-1"]
    assert run_ranks(_again, 2, tmp_path, str(tmp_path)) == [expected] * 2
