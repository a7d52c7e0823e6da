"""Ranks that no torchrun starts: by `pyddpdiag run --nproc`, and by one `pyddpdiag run` for each."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.ports import own_port
from train_support import USUAL, ended, finish, started

from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.run import open_run

# Runs a command, as timeout(1) does.
WRAPPER = (sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))")
RUN = (sys.executable, "-m", "pyddpdiag", "run")
SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
if os.environ["RANK"] == "1" and "fails" in sys.argv:
    os._exit(7)
ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
for step in range(4):
    if step == 2 and os.environ["RANK"] == "1" and "ends" in sys.argv:
        os._exit(9)
    ddp(torch.ones(2, 8)).sum().backward()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def test_a_start_of_both_machines_ranks(tmp_path: Path, script: str) -> None:
    """Two machines with folders of their own: one run, whose folders merge."""
    options = ("--nproc", "1", "--nnodes", "2", "--rendezvous", f"127.0.0.1:{own_port()}")
    with ExitStack() as stack:
        starts = []
        for node in range(2):
            place = tmp_path / f"machine-{node}"
            place.mkdir()
            command = [*RUN, "--trace", f"of-{node}", *options, "--node-rank", str(node), "--", script]
            starts.append(stack.enter_context(started(command, place, **USUAL)))
        ends = [finish(start) for start in starts]
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    for node, (_, _, err) in enumerate(ends):
        assert f"of-{node} has the traces of rank {node} of 2" in err
        assert f"pyddpdiag collect of-{node} DIR... --into of-{node}-all" in err
    assert "the first machine shows the verdict" not in ends[1][2]
    folders = [str(tmp_path / f"machine-{node}" / f"of-{node}") for node in range(2)]
    assert main(["collect", *folders, "--into", str(tmp_path / "all")]) == 0
    assert [trace.rank for trace in open_run(tmp_path / "all").ranks] == [0, 1]
    assert not any("runs are mixed" in warning for warning in load_report(tmp_path / "all").warnings)


@pytest.mark.parametrize(
    ("wrapper", "job", "name"),
    [
        ((), {"SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "123", "SLURM_STEP_ID": "0"}, "ddptrace-123-0"),
        (WRAPPER, {}, f"-{os.getpid()}"),
    ],
    ids=["step", "wrapped"],
)
def test_one_command_for_each_rank_gives_one_folder_and_one_verdict(
    wrapper: tuple[str, ...], job: dict[str, str], name: str, tmp_path: Path, script: str
) -> None:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(own_port()), "WORLD_SIZE": "2"}
    with ExitStack() as stack:
        starts = [
            stack.enter_context(
                started(
                    [*wrapper, *RUN, "--", sys.executable, script],
                    tmp_path,
                    **USUAL,
                    **meeting,
                    **(job | {"SLURM_PROCID": str(rank)} if job else {}),
                    RANK=str(rank),
                )
            )
            for rank in range(2)
        ]
        ends = [finish(start) for start in starts]
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    [folder] = tmp_path.glob("ddptrace-*")
    assert folder.name.endswith(name)
    assert len(open_run(folder).ranks) == 2
    (first, second) = (err for _, _, err in ends)
    assert (
        f"pyddpdiag: {folder.name}" in first
        and "pyddpdiag:" not in second
        and "pyddpdiag collect" not in first
    )


ALONE = """
import datetime, os, pathlib, threading, time
import torch.distributed as dist

def look():
    while not any(pathlib.Path(os.environ["PYDDPDIAG_RUN_NOTES"]).glob("joining_*")):
        time.sleep(0.05)
    print("waits to join", flush=True)

threading.Thread(target=look, daemon=True).start()
dist.init_process_group("gloo", world_size=2, timeout=datetime.timedelta(seconds=3))
"""


def test_a_rank_that_meets_nobody_is_told_why_and_of_no_folder(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(ALONE, encoding="utf-8")
    with started([*RUN, "--trace", "run", "--nproc", "1", "--", "alone.py"], tmp_path, **USUAL) as process:
        code, out, err = finish(process)
    assert code and out == "waits to join\n", err
    said = err.partition("nothing was recorded: ")[2]
    assert "clients joined, at alone.py:" in said and "  hint: Compare WORLD_SIZE" in said, err
    assert not (tmp_path / "run").exists() and "pyddpdiag: run" not in err, err


def test_a_rank_that_fails_ends_the_others(tmp_path: Path, script: str) -> None:
    code, err = ended(*RUN, "--trace", "run", "--nproc", "2", "--", script, "fails", cwd=tmp_path)
    assert code == 7 and "rank 1 ended with exit code 7" in err


def test_the_verdict_says_the_code_that_only_the_launcher_knows(tmp_path: Path, script: str) -> None:
    code, err = ended(*RUN, "--trace", "run", "--nproc", "2", "--", script, "ends", cwd=tmp_path)
    assert code == 9 and "Rank 1 ended with exit code 9, as its launcher saw" in err, err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--node-rank", "1"], "need --nproc"),
        (["--nproc", "2", "--nnodes", "2"], "a place to meet"),
        (["--nproc", "2", "--node-rank", "1"], "do not fit together"),
        (["--nproc", "2", "--rendezvous", "here"], "is no address"),
        (["--nproc", "2", "--rendezvous", "host:99999"], "is no address"),
    ],
)
def test_wrong_starts_are_refused(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *options, "--", "train.py"]) == 2
    assert words in capsys.readouterr().err
