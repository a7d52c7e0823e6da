"""Which task of a scheduler a process is, and where all of them record."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.trace_writer import write_training

from pyddpdiag.integrations import tasks


def process(pid: int, **environ: str) -> Any:
    return SimpleNamespace(create_time=lambda: 1_700_000_000.0, pid=pid, environ=lambda: environ)


# `timeout 250 pyddpdiag run ...` below a shell that the launcher starts for each task; the launcher's own comes last.
PARENTS = (process(99, RANK="1"), process(98, RANK="1", WORLD_SIZE="2"), process(77), process(1))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "5"}, None),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"},
            (1, 4, "ddptrace-5-0"),
        ),
        # A scheduler's task that starts the ranks of its machine: its own variables come before torch's.
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_JOB_ID": "5",
                "RANK": "0",
                "WORLD_SIZE": "8",
            },
            (1, 2, "ddptrace-5"),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_NAMESPACE": "prte-a@1/../x"},
            (2, 3, "ddptrace-prte-a-1-..-x"),
        ),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, None)),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "5"},
            (1, 2, "ddptrace-5"),
        ),
        (
            {"RANK": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "5", "MASTER_ADDR": "h"},
            (1, 2, "ddptrace-5"),
        ),
        ({"RANK": "1", "WORLD_SIZE": "2", "PBS_JOBID": "7.host"}, (1, 2, "ddptrace-7.host")),
        # A batch script, which starts tasks.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "5"}, None),
        ({"RANK": "2", "WORLD_SIZE": "2"}, None),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None),
    ],
)
def test_the_task_and_its_folder(
    environ: dict[str, str], expected: tuple[int, int, str | None] | None
) -> None:
    task = tasks.here(environ, lambda: PARENTS)
    if expected is None:
        assert task is None
        return
    assert task is not None and (task.number, task.count) == expected[:2]
    # Without the name of a job: when and as what process the launcher was started.
    assert str(task.folder) == expected[2] or (expected[2] is None and str(task.folder).endswith("-77"))
    assert len(task.folder.parts) == 1


def test_the_first_task_waits_for_open_traces_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MISSING_S", 0.0)
    write_training(tmp_path)
    tasks.wait_for_others(tmp_path, 60)
    (tmp_path / "rank_1.ddptrace").unlink()
    tasks.wait_for_others(tmp_path, 60)  # another machine's
    nothing = threading.Thread(target=tasks.wait_for_others, args=(tmp_path / "none", 0.3))
    nothing.start()
    nothing.join(60)
    assert not nothing.is_alive()
