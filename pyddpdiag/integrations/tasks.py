"""One task of many: a scheduler or launcher starts `pyddpdiag run` once for each rank or machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from pyddpdiag.errors import TraceError, UsageError
from pyddpdiag.trace.folder import find_traces
from pyddpdiag.trace.notes import read_nodes
from pyddpdiag.trace.reader import read_header

# Number and count of tasks, and what names their common start; as their documents give them.
_VARIABLES: Final = (
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
    ("PMI_RANK", "PMI_SIZE", ("PMI_ID", "PMI_JOBID")),
    ("RANK", "WORLD_SIZE", ()),
    ("RANK", "SLURM_NTASKS", ()),
)
# The job, where its tasks are started by other means than its scheduler's.
_JOBS: Final = (("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"), ("PBS_JOBID",), ("LSB_JOBID",))
_POLL_S: Final = 0.2
WAIT_S: Final = 30.0
"""How long the first task waits for the traces of the others to be closed, before it reads them."""
MISSING_S: Final = 3.0


@dataclass(frozen=True)
class Task:
    """This process among those that were started alike.

    Attributes:
        number: from 0; task 0 shows the verdict.
        count: of tasks, at least 2.
        job: names their common start, in the characters of a file name: the same in all tasks of this machine, and in
            all tasks at all where a scheduler names the job.
    """

    number: int
    count: int
    job: str

    @property
    def folder(self) -> Path:
        """Where all of them record if no folder is given."""
        return Path(f"ddptrace-{self.job}")


def here(
    environ: Mapping[str, str] = os.environ, parents: Callable[[], Iterable[psutil.Process]] | None = None
) -> Task | None:
    """The task that the environment makes this process; None: it is the only one.

    Args:
        environ: the variables.
        parents: gives the process that started this one, its parent and so on, for launchers that name no job.
    """
    for rank, size, names in _VARIABLES:
        number, count = _whole(environ.get(rank)), _whole(environ.get(size))
        if number is None or count is None or count < 2 or number >= count:
            continue
        job = next((found for found in (_named(environ, each) for each in (names, *_JOBS)) if found), "")
        if not job:
            job = _start_of(_launcher((parents or psutil.Process().parents)(), rank, environ[rank]))
        return Task(number, count, "".join(c if c.isalnum() or c in "-_." else "-" for c in job)[:80])
    return None


def number_among(machines: int) -> int:
    """Which machine this is, where a scheduler started a task on each of so many; 0 if there is only one.

    Raises:
        UsageError: nothing says which, or there are more or fewer tasks.
    """
    task = here()
    if machines == 1:
        return 0
    if task is None:
        raise UsageError(
            f"there are {machines} machines, and nothing says which of them this is.",
            hint="give --node-rank: 0 on the first machine, 1 on the next.",
        )
    if task.count != machines:
        raise UsageError(
            f"--nnodes is {machines}, but the scheduler started {task.count} tasks.",
            hint="start one task on each machine (srun --ntasks-per-node=1), or give --node-rank.",
        )
    return task.number


def wait_for_others(folder: Path, limit_s: float = WAIT_S, tasks: int = 0) -> None:
    """Waits until the traces of all ranks are there and closed, or the time is over.

    Where all of so many `tasks` have noted here that they ended, nobody closes anything any more. Machines without a
    common folder never bring theirs: once all that are here are closed, it waits `MISSING_S` more.
    """
    begin = time.monotonic()
    all_here_closed_since = begin
    while (now := time.monotonic()) < begin + limit_s:
        notes = read_nodes(folder).notes
        if tasks and len(notes) >= tasks and all(note.exit_code is not None for note in notes):
            return
        missing, is_open = _others(folder)
        if not missing and not is_open:
            return
        if is_open:
            all_here_closed_since = now
        if now - all_here_closed_since > MISSING_S:
            return
        time.sleep(_POLL_S)


def _others(folder: Path) -> tuple[bool, bool]:
    """Whether traces of ranks are missing, and whether one that is here is not closed yet."""
    try:
        headers = [read_header(path)[0] for path in find_traces(folder)[0]]
    except TraceError:
        return False, True
    return len(headers) < max(header.world_size for header in headers), any(not h.closed for h in headers)


def _named(environ: Mapping[str, str], names: Iterable[str]) -> str:
    """What these variables say together."""
    return "-".join(environ[name] for name in names if environ.get(name))


def _launcher(parents: Iterable[psutil.Process], rank: str, number: str) -> psutil.Process | None:
    """The process that gave the task its number; what only wraps the task, as timeout(1) does, has it as well."""
    parent = None
    for parent in parents:
        try:
            if parent.environ().get(rank) != number:
                break
        except (OSError, psutil.Error):
            break
    return parent


def _start_of(launcher: psutil.Process | None) -> str:
    """When and as what process the launcher was started: the same in all that it starts on this machine."""
    if launcher is None:
        return f"of-{os.getppid()}"
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(launcher.create_time())) + f"-{launcher.pid}"


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
