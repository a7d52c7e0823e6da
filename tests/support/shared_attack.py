"""Kills one of several ranks that average in shared memory at a random moment, and trains on a loaded machine.

The same for the short tests and the long session. Linux and macOS only: elsewhere no fork server makes ranks quickly.
"""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import read_trace
from support.forks import context
from support.ranks import receive
from support.shared_job import Way, same_bits, train_until_killed

ANSWER_S = 100
MOST_MOMENT_S = 0.15


@dataclass(frozen=True)
class Kill:
    """One kill: how many ranks there were, and after how many seconds the last of the others knew."""

    ranks: int
    seconds: float


def kill_one(folder: Path, seed: int, hosts: Sequence[int] = ()) -> Kill:
    """Kills one rank of two to four while they train, and checks what the others say and what is left.

    The moment is at random in steps that average in shared memory alone; with `hosts`, that of each rank, in shared
    memory and between the hosts.
    """
    chance = random.Random(seed)
    ranks = len(hosts) or chance.randint(2, 4)
    victim = chance.randrange(ranks)
    way: Way = "attach" if seed % 2 else "reducer"
    before = _shared_files()
    with _ranks(ranks, train_until_killed, folder, way, hosts) as started:
        for _, pipe in started:
            assert _answer(pipe, f"seed {seed}") == "begun"
        time.sleep(chance.uniform(0.0, MOST_MOMENT_S))
        dead = started[victim][0]
        at = time.monotonic()
        dead.kill()
        latest = at
        for rank, (process, pipe) in enumerate(started):
            if rank == victim:
                process.join(ANSWER_S)
                continue
            text, when = _answer(pipe, f"seed {seed}, rank {rank}")
            assert f"rank {victim} (process {dead.pid})" in text, f"seed {seed}, rank {rank}: {text}"
            assert "has ended in the middle of training" in text, f"seed {seed}, rank {rank}: {text}"
            latest = max(latest, when)
            process.join(ANSWER_S)
            assert process.exitcode == 0, f"seed {seed}: rank {rank} ended with {process.exitcode}"
    assert _shared_files() <= before, f"seed {seed}: {_shared_files() - before} is left"
    for rank in range(ranks):
        trace = read_trace(folder / "trace" / f"rank_{rank}.ddptrace")
        assert (trace.malformed, trace.unknown) == (0, 0), f"seed {seed}"
        assert bool(trace.header.closed) == (rank != victim)
        assert {bool(flags & Flag.SHARED) for flags in trace.of_kind(Kind.BUCKET)["flags"]} == {True}
    return Kill(ranks, latest - at)


def train_under_load(folder: Path) -> None:
    """Trains beside processes that never rest, and checks each step's bits against those that came over Gloo."""
    with _load(2 * (os.cpu_count() or 1)), _ranks(4, same_bits, folder, 8) as started:
        answers = [_answer(pipe, "a run") for _, pipe in started]
        for process, _ in started:
            process.join(ANSWER_S)
            assert process.exitcode == 0
    wanted = answers[0]["attach", "off"]
    for rank, answer in enumerate(answers):
        # Both ways start from the same weights and have the same batches, but not the same buckets.
        assert answer["attach", "off"] == answer["attach", "require"] == wanted, rank
        assert answer["reducer", "off"] == answer["reducer", "require"] == answers[0]["reducer", "off"], rank


@contextlib.contextmanager
def _ranks(
    ranks: int, job: Callable[..., None], folder: Path, *arguments: Any
) -> Iterator[list[tuple[BaseProcess, Connection]]]:
    """Processes that run `job(rank, ranks, folder, pipe, *arguments)`; none is left behind."""
    forks = context()
    started = []
    try:
        for rank in range(ranks):
            ours, theirs = forks.Pipe()
            process = forks.Process(target=job, args=(rank, ranks, str(folder), theirs, *arguments))
            process.start()
            theirs.close()
            started.append((process, ours))
        yield started
    finally:
        for process, pipe in started:
            if process.is_alive():
                process.kill()
            process.join()
            pipe.close()


@contextlib.contextmanager
def _load(processes: int) -> Iterator[None]:
    forks = context()
    busy = [forks.Process(target=_never_rest, daemon=True) for _ in range(processes)]
    try:
        for process in busy:
            process.start()
        yield
    finally:
        for process in busy:
            if process.pid is not None:
                process.kill()
                process.join()


def _never_rest() -> None:
    while True:
        pass


def _answer(pipe: Connection, who: str) -> Any:
    try:
        return receive(pipe, ANSWER_S)
    except TimeoutError:
        raise AssertionError(f"{who}: no answer in {ANSWER_S} s") from None
    except EOFError:
        raise AssertionError(f"{who}: it ended without an answer") from None


def _shared_files() -> set[str]:
    """What is in shared memory and could be ours."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir() if "ddpdiag" in path.name} if folder.is_dir() else set()
