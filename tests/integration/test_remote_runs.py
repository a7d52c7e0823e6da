"""Real trainings whose traces go to a URL or to the first machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from support.ports import own_port
from train_support import START_S, USUAL, ended, finish, started

from pyddpdiag.pipeline import load_report
from pyddpdiag.remote.copy import at_hand
from pyddpdiag.report.json import report_to_json
from pyddpdiag.trace.run import open_run

RUN = (sys.executable, "-m", "pyddpdiag", "run")
SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
if "own" in sys.argv:
    import pyddpdiag
    recorder = pyddpdiag.Recorder(sys.argv[-1])
    recorder.attach(ddp)
if "breaks" in sys.argv:
    open(sys.argv[-1], "w").close()
for _ in range(4):
    ddp(torch.ones(2, 8)).sum().backward()
if "long" in sys.argv:
    while True:
        ddp(torch.ones(2, 8)).sum().backward()
        time.sleep(0.05)
if "own" in sys.argv:
    recorder.close()
if "tells" in sys.argv:
    with open(os.path.join(os.environ["PYDDPDIAG_RUN_GATHER"], "secret_0")) as file:
        print("secret:", file.read(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{(tmp_path / 'far' / 'one').as_posix()}"


def test_run_brings_its_traces_and_leaves_none(tmp_path: Path, script: str, url: str) -> None:
    place = tmp_path / "here"
    place.mkdir()
    command = [*RUN, "--trace", url, "--sync-every", "1", "--nproc", "2", "--", script]
    code, err = ended(*command, cwd=place)
    assert code == 0 and f"brought to {url}" in err, err
    assert list(place.iterdir()) == []
    with at_hand(url) as folder:
        assert len(open_run(folder).ranks) == 2
        assert load_report(folder).warnings == ()
    assert not list((tmp_path / "far" / "one").glob("*.live"))


def test_machines_with_one_url_have_one_verdict(tmp_path: Path, script: str, url: str) -> None:
    meeting = f"127.0.0.1:{own_port()}"
    with ExitStack() as stack:
        running = []
        for node in range(2):
            place = tmp_path / f"node{node}"
            place.mkdir()
            options = ["--nproc", "1", "--nnodes", "2", "--node-rank", f"{node}", "--rendezvous", meeting]
            command = [*RUN, "--trace", url, *options, "--", script]
            running.append(stack.enter_context(started(command, place, **USUAL)))
        ends = [finish(process) for process in running]
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    assert "2 of 2 ranks" in ends[0][2] and f"brought to {url}" in ends[0][2], str(ends)
    assert "the first machine shows the verdict" in ends[1][2] and "of 2 ranks" not in ends[1][2], str(ends)
    assert not list(tmp_path.glob("node?/*"))


def test_a_recorder_brings_its_own_files_when_it_is_closed(tmp_path: Path, script: str, url: str) -> None:
    place = tmp_path / "here"
    place.mkdir()
    command = [sys.executable, "-m", "pyddpdiag.integrations.started_ranks", "2", "1", "0", "127.0.0.1"]
    code, err = ended(*command, str(own_port()), script, "own", url, cwd=place)
    assert code == 0, err
    assert list(place.iterdir()) == [], err
    with at_hand(url) as folder:
        run = open_run(folder)
    assert len(run.ranks) == 2 and all(trace.header.closed for trace in run.ranks)


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_ranks_that_are_killed_lose_nothing(tmp_path: Path, script: str, url: str) -> None:
    place, far = tmp_path / "here", tmp_path / "far" / "one"
    place.mkdir()
    command = [*RUN, "--trace", url, "--sync-every", "0.2", "--nproc", "2", "--", script, "long"]
    with started(command, place, **USUAL) as start:
        until = time.monotonic() + START_S
        while len(list(far.glob("rank_*.live/index.json"))) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        # While it runs: what has come is a run that can be read.
        with at_hand(url) as folder:
            assert len(open_run(folder).ranks) == 2
        ranks = [
            child
            for child in psutil.Process(start.pid).children(recursive=True)
            if child.environ().get("RANK") is not None
        ]
        assert len(ranks) == 2
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
        code, _, err = finish(start)
    assert code == 137 and f"brought to {url}" in err, err
    with at_hand(url) as folder:
        run = open_run(folder)
    assert len(run.ranks) == 2 and not any(trace.header.closed for trace in run.ranks)
    assert not run.damaged and list(place.iterdir()) == []


def test_what_cannot_be_brought_stays_and_is_said(tmp_path: Path, script: str, url: str) -> None:
    place, far = tmp_path / "here", tmp_path / "far"
    place.mkdir()
    # A file where the folder would be comes while it runs.
    command = [*RUN, "--trace", url, "--nproc", "2", "--", script, "breaks", str(far)]
    code, err = ended(*command, cwd=place)
    assert code == 0, err
    assert "kept in" in err and f"--into {url}" in err, err
    assert len(list(place.glob("*/*/*.ddptrace"))) == 2
    # Before it begins, such a place is refused.
    code, err = ended(*command, cwd=place)
    assert code == 2 and "cannot list" in err, err


def test_machines_without_a_common_folder_gather(tmp_path: Path, script: str) -> None:
    options = ["--gather", "--gather-port", str(own_port()), "--nproc", "1", "--nnodes", "2"]
    meeting = ["--rendezvous", f"127.0.0.1:{own_port()}"]
    with ExitStack() as stack:
        starts = []
        for node in range(2):
            place = tmp_path / f"machine-{node}"
            place.mkdir()
            command = [
                *RUN,
                "--trace",
                "run",
                *options,
                *meeting,
                *("--node-rank", str(node), "--", script, "tells"),
            ]
            starts.append(stack.enter_context(started(command, place, **USUAL, TMPDIR=str(tmp_path))))
        ends = [finish(start) for start in starts]
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    assert "sent to node 0" in ends[1][2]
    # What they knew each other by is in no file that is left, nor does anybody print it.
    (secret,) = {out.partition("secret: ")[2].strip() for _, out, _ in ends}
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(secret) == 32 and secret.encode() not in kept and bytes.fromhex(secret) not in kept
    assert secret not in report_to_json(load_report(tmp_path / "machine-0" / "run"))
    run = open_run(tmp_path / "machine-0" / "run")
    assert [trace.rank for trace in run.ranks] == [0, 1] and not run.missing_count
    assert (tmp_path / "machine-1" / "run" / "rank_1.ddptrace").exists()


def test_one_command_for_each_rank_gathers_from_machines_of_several(tmp_path: Path, script: str) -> None:
    """As SLURM starts them: two tasks on each of two machines, which have a folder each."""
    options = ["--gather", "--gather-port", str(own_port()), "--trace", "run"]
    job = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "123", "SLURM_STEP_ID": "0"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(own_port()), "WORLD_SIZE": "4"}
    with ExitStack() as stack:
        starts = []
        for rank in range(4):
            place = tmp_path / f"machine-{rank // 2}"
            place.mkdir(exist_ok=True)
            variables = {**USUAL, **meeting, **job, "RANK": f"{rank}", "SLURM_PROCID": f"{rank}"}
            command = [*RUN, *options, "--", sys.executable, script]
            starts.append(stack.enter_context(started(command, place, **variables)))
        ends = [finish(start) for start in starts]
    assert [code for code, _, _ in ends] == [0] * 4, str(ends)
    said = [err for _, _, err in ends]
    assert "4 of 4 ranks" in said[0] and all("sent to node 0" in err for err in said[1:]), said
    run = open_run(tmp_path / "machine-0" / "run")
    assert [trace.rank for trace in run.ranks] == [0, 1, 2, 3] and not run.missing_count
    assert not list((tmp_path / "machine-0" / "run").glob("*.part"))
