"""The lines of docs/schedulers.md for launchers other than SLURM, with the real launchers."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import pasted
from support.ports import own_port
from support.promised import need
from train_support import descendants, finish, started, wait_for

from pyddpdiag.cli import main
from pyddpdiag.trace.notes import read_nodes
from pyddpdiag.trace.run import open_run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the lines are for a POSIX shell")

# Of each program: who promises it, and how it is installed.
PROGRAMS = {
    "mpirun": ("schedulers", "on Debian: apt-get install openmpi-bin"),
    "accelerate": ("frameworks", "pip install accelerate"),
}


def shell(text: str) -> list[str]:
    return ["bash", "-euc", text]


def checked(folder: Path, ends: Sequence[tuple[int, str, str]], ranks: int) -> None:
    """Every command ended well, one of them with a verdict, and the folder has all ranks."""
    assert [code for code, _, _ in ends] == [0] * len(ends), str(ends)
    said = "".join(err for _, _, err in ends)
    assert said.count("\npyddpdiag: ") == 1, said
    assert [trace.rank for trace in open_run(folder).ranks] == list(range(ranks))
    assert {note.exit_code for note in read_nodes(folder).notes} == {0}


@pytest.mark.parametrize(
    ("heading", "needed"),
    [
        ("Open MPI", ["mpirun"]),
        ("torchrun", []),
        # On processors it starts ranks by mpirun.
        ("accelerate launch", ["accelerate", "mpirun"]),
    ],
    ids=["mpirun", "torchrun", "accelerate"],
)
def test_a_launcher_gives_one_folder_and_one_verdict(
    tmp_path: Path, heading: str, needed: Sequence[str]
) -> None:
    bed = pasted.bed(tmp_path)
    for program in needed:
        promise, cure = PROGRAMS[program]
        here = shutil.which(program, path=bed["PATH"])
        need(promise, "" if here else f"no {program} here; {cure}")
    # Open MPI refuses root and more tasks than cores unless it is told.
    mpi = {f"OMPI_{name}": "1" for name in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM")}
    mpi["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    text = pasted.here(pasted.lines(heading))
    with started(shell(text), tmp_path, **bed, **mpi) as process:
        end = finish(process)
    assert end[1].count("trained") == 2, end
    [folder] = tmp_path.glob("ddptrace-*")
    checked(folder, [end], 2)


def test_the_machines_of_torchrun_have_folders_that_merge(tmp_path: Path) -> None:
    line = pasted.here(pasted.lines("torchrun", 1)).replace("192.168.1.5", "127.0.0.1").strip()
    line = line.replace("--nproc-per-node 2", "--nproc-per-node 1")
    with ExitStack() as stack:
        running = []
        for node in range(2):
            place = tmp_path / f"{node}"
            place.mkdir()
            text = line.replace("--node-rank 0", f"--node-rank {node}")
            running.append(stack.enter_context(started(shell(text), place, **pasted.bed(place))))
        ends = [finish(process) for process in running]
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    folders = [str(tmp_path / f"{node}" / "run") for node in range(2)]
    assert main(["collect", *folders, "--into", str(tmp_path / "all")]) == 0
    assert len(open_run(tmp_path / "all").ranks) == len(read_nodes(tmp_path / "all").notes) == 2


@pytest.mark.parametrize("place", [0, 1], ids=["PyTorchJob", "indexed job"])
def test_the_pods_of_a_job_record_into_a_volume(tmp_path: Path, place: int) -> None:
    """By the variables that Kubernetes sets; its pods are processes here."""
    port = str(own_port())
    line = pasted.lines("Kubernetes", place).replace("29500", port).replace("/runs", str(tmp_path))
    line = line.replace("--nproc 2", "--nproc 1")
    job = {"JOB_NAME": "digits-7d4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with ExitStack() as stack:
        running = []
        for pod in range(2):
            if place:
                own = {
                    "JOB_COMPLETION_INDEX": f"{pod}",
                    "NODES": "2",
                    "FIRST": "127.0.0.1",
                    "JOB_NAME": "digits-7d4",
                }
            else:
                own = {**job, "RANK": f"{pod}", "WORLD_SIZE": "2"}
            running.append(stack.enter_context(started(shell(line), tmp_path, **pasted.bed(tmp_path), **own)))
        ends = [finish(process) for process in running]
    checked(tmp_path / "digits-7d4", ends, 2)


def test_a_second_run_into_a_folder_is_refused_before_it_trains(tmp_path: Path) -> None:
    """For a task of many as well: its verdict would be that of the run before."""
    bed = pasted.bed(tmp_path)
    line = "pyddpdiag run --trace run --nproc 1 -- train.py"
    with started(shell(line), tmp_path, **bed) as process:
        assert finish(process)[0] == 0
    tasks = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    with started(shell(line), tmp_path, **bed, **tasks) as process:
        code, out, err = finish(process)
    assert code == 2 and "there are traces already in 'run'" in err and "trained" not in out, err


def test_a_machine_that_never_comes_is_said_and_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    pasted.bed(tmp_path)
    options = f"--nproc 1 --nnodes 2 --node-rank 1 --rendezvous 127.0.0.1:{own_port()}"
    text = f"exec pyddpdiag run --trace run {options} -- train.py"
    with started(shell(text), tmp_path, **pasted.bed(tmp_path)) as process:
        wait_for(lambda: len(descendants(process.pid)) >= 2, 240, "its rank was started")
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
    assert code and "nothing was recorded" in err, err
