"""Runs a function in every rank of a real Gloo process group, each rank a process of its own.

It does not use `pyddpdiag.ranks.launch`, which promises the opposite of what these tests need. `launch` ends all ranks
as soon as one is lost; here the others must live on to tell what they saw. It leaves the process group by a barrier,
which a group that was broken on purpose cannot pass. It takes no notice of how a process ends after its last word; here
a Gloo worker that aborts the process at its very end is a fault to be found.
"""

import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from support.forks import context, take_environment

# Spawning a rank and loading torch in it: that alone takes 40 s on a slow machine.
START_S = 150
# From the moment that all ranks are ready.
TIMEOUT_S = 240


def run_ranks(
    job: Callable[..., Any],
    world_size: int,
    folder: Path,
    *arguments: Any,
    group_timeout_s: float = 60,
    lost: frozenset[int] = frozenset(),
    timeout_s: float = TIMEOUT_S,
    spawned: bool = False,
) -> list[Any]:
    """What `job(rank, world_size, *arguments)` returned in each rank.

    `job` must be importable. `spawned` ranks are quite new processes: they import torch with the variables and the
    output that the test has at that moment, which takes seconds of processor time. Ranks in `lost` are expected to die
    without an answer; theirs is None. Fails the test with the traceback of any other rank that fails, and `timeout_s`
    after all of them have loaded torch and the job's module, or START_S after their start if they have not; no process
    is left behind.
    """
    processes_of = multiprocessing.get_context("spawn") if spawned else context()
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    pipes, processes = [], []
    for rank in range(world_size):
        ours, theirs = processes_of.Pipe()
        process = processes_of.Process(
            target=_rank,
            args=(theirs, dict(os.environ), job, rank, world_size, str(meeting), group_timeout_s, arguments),
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    answers: list[Any] = []
    try:
        _await_ready(pipes)
        deadline = time.monotonic() + timeout_s
        for rank, pipe in enumerate(pipes):
            try:
                kind, answer = receive(pipe, deadline - time.monotonic())
            except TimeoutError:
                pytest.fail(f"rank {rank} gave no answer in {timeout_s} s")
            except EOFError:
                kind, answer = "lost", None
            if kind == "failed":
                pytest.fail(f"rank {rank} failed:\n{answer}")
            if (kind == "lost") != (rank in lost):
                pytest.fail(f"rank {rank} {'died without an answer' if kind == 'lost' else 'did not die'}")
            answers.append(answer)
        for rank, process in enumerate(processes):
            process.join(max(0.1, deadline - time.monotonic()))
            if process.exitcode != 0 and rank not in lost:
                pytest.fail(f"rank {rank} answered, but its process ended with {process.exitcode}")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
    return answers


def ran_once(job: Callable[..., Any], world_size: int, *, answers: bool = True, **options: Any) -> Any:
    """A fixture for the tests of a file: a job's folder, which is its argument, and what each rank returned.

    `answers`: False for the folder alone. `options`: of `run_ranks`.
    """

    @pytest.fixture(scope="module")
    def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
        folder = tmp_path_factory.mktemp("ran")
        found = run_ranks(job, world_size, folder, str(folder), **options)
        return (folder, found) if answers else folder

    return ran


def receive(pipe: Connection, seconds: float) -> Any:
    """What a process sends within this time.

    Raises:
        EOFError: the process has ended. Windows says so with a BrokenPipeError, of `poll` as of `recv`.
        TimeoutError: nothing came.
    """
    try:
        if pipe.poll(max(0.0, seconds)):
            return pipe.recv()
    except (BrokenPipeError, ConnectionResetError) as error:
        raise EOFError from error
    raise TimeoutError(f"nothing came in {seconds:.0f} s")


def _await_ready(pipes: Sequence[Connection]) -> None:
    """Waits until all ranks are ready, then lets them begin together."""
    limit = time.monotonic() + START_S
    for rank, pipe in enumerate(pipes):
        try:
            receive(pipe, limit - time.monotonic())
        except TimeoutError:
            pytest.fail(f"rank {rank} was not ready in {START_S} s")
        except EOFError:
            pytest.fail(f"rank {rank} ended before it was ready; its own output says why")
    for pipe in pipes:
        pipe.send("begin")


def _rank(
    pipe: Connection,
    variables: dict[str, str],
    job: Callable[..., Any],
    rank: int,
    world_size: int,
    meeting: str,
    timeout_s: float,
    arguments: Any,
) -> None:
    take_environment(variables)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    pipe.send("ready")
    pipe.recv()
    try:
        dist.init_process_group(
            "gloo",
            init_method=Path(meeting).as_uri(),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout_s),
        )
        answer = ("done", job(rank, world_size, *arguments))
        # What lives on in cycles holds the process group, whose end waits for its workers: without it a worker that
        # is late, on a busy machine, aborts the process as it ends.
        gc.collect()
        dist.destroy_process_group()
    except BaseException:
        answer = ("failed", traceback.format_exc())
    pipe.send(answer)
    pipe.close()
