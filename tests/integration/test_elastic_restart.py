"""A launcher that restarts its ranks: each attempt has a trace of its own, and the first one's stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ranks import run_ranks
from support.restarted import ENDS_IN, STEPS

import pyddpdiag
from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_report
from pyddpdiag.record import agreement

JOB = Path(__file__).resolve().parents[1] / "support" / "restarted.py"


def test_a_restarted_job_trains_and_both_attempts_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "--max-restarts=1", str(JOB), str(folder)],
        cwd=tmp_path,
        # In a store that outlives the restart, torch's own ranks may find the addresses of the ranks before them.
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    newest, first = load_report(folder), load_report(folder, attempt=0)
    assert newest.folder == str(folder / "attempt-1")
    assert [rank.steps for rank in newest.ranks] == [STEPS] * 2
    assert "this is attempt 1, the newest; --attempt shows another: 0." in newest.warnings[0]
    assert newest.run_id != first.run_id
    # Rank 1 ended by itself; rank 0 only lost it.
    assert first.verdict.findings[0].rank == 1
    assert first.ranks[1].last_step == ENDS_IN
    assert main(["report", str(folder), "--attempt", "2"]) == 2
    assert "there are: 0, 1" in capsys.readouterr().err


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
