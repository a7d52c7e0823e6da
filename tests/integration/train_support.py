"""Helpers of the training tests: commands, jobs that fail on purpose, and looking for what is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from support.forked_command import forked

from pyddpdiag.ranks import interfaces
from pyddpdiag.train.loop import train_rank
from pyddpdiag.train.rank_session import Session

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240
# For a launcher and its ranks to be in the middle of training: both load torch first, one after the other.
START_S = 240
# Variables of another launcher, or of the user's shell, that would change what a test asks for.
FOREIGN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "GLOO_SOCKET_IFNAME",
)


def command(*options: object) -> list[str]:
    """The command line of `pyddpdiag train`."""
    return [sys.executable, "-m", "pyddpdiag", "train", *map(str, options)]


USUAL = {
    "GLOO_SOCKET_IFNAME": interfaces.loopback() or "",
    "OMP_NUM_THREADS": "1",
    # In a store that outlives a restart, torch's own ranks may find the addresses of the ranks before them.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "USE_LIBUV": "0",
}
"""What a command needs whose ranks are all on this machine."""


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without foreign variables; children find this package and these helpers."""
    env = {k: v for k, v in os.environ.items() if k not in FOREIGN and not k.startswith("TORCHELASTIC")}
    env["PYTHONPATH"] = os.pathsep.join(
        [
            str(Path(__file__).parent),
            *filter(None, [os.environ.get("PYTHONPATH"), *(p for p in sys.path if p)]),
        ]
    )
    env.update(extra)
    return env


def start(arguments: list[str], cwd: Path, **extra: str) -> subprocess.Popen[str]:
    """Starts a command in a session of its own, so that signals to its group reach nobody else."""
    return subprocess.Popen(
        arguments,
        cwd=cwd,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def started(arguments: list[str], cwd: Path, **extra: str):
    """Like `start`; whatever it started is gone after the block, even if the test failed."""
    process = start(arguments, cwd, **extra)
    seen = {}
    try:
        yield process
    finally:
        for child in descendants(process.pid):
            seen[child.pid] = child
        for victim in [*seen.values(), process]:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
        process.communicate()


def run(*options: object, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs `pyddpdiag train` to its end, in forks (support/forked_command.py)."""
    with forked(("train", *options), cwd, environment(**extra)) as process:
        return subprocess.CompletedProcess(options, *process.ended(TIMEOUT_S))


def finish(process: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> tuple[int, str, str]:
    """Exit code, standard output and standard error. One that does not end in time fails the test: with its stacks,
    where PYTHONFAULTHANDLER asks for them."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        for one in [*descendants(process.pid), process]:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGABRT if os.name != "nt" else signal.SIGTERM)
        out, err = process.communicate(timeout=TIMEOUT_S)
        pytest.fail(f"{process.args} did not end within {timeout_s} s:\n{out}\n{err}")
    return process.returncode, out, err


def ended(*command: str, cwd: Path, timeout_s: float = 560, **extra: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose ranks meet on this machine."""
    with started(list(command), cwd, **USUAL, **extra) as process:
        code, _, err = finish(process, timeout_s)
    return code, err


def descendants(pid: int) -> list[psutil.Process]:
    """All living processes below one."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def ranks_of(pid: int) -> list[psutil.Process]:
    """The rank processes of a launcher, in the order of their start, which is that of their ranks.

    Spawned, or forked by the fork server, which is the launcher's own child.
    """
    found = []
    for child in descendants(pid):
        try:
            command = " ".join(child.cmdline())
            if "spawn_main" in command or ("multiprocessing.forkserver" in command and child.ppid() != pid):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda child: child.create_time())


def wait_for(condition, timeout_s: float, what: str) -> None:
    """Polls a condition; fails the test if it does not come true in time."""
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def assert_gone(processes: list[psutil.Process], timeout_s: float = 60) -> None:
    """Fails unless all these processes end within the time."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    assert not alive, f"still running: {alive}"


def records_published(folder: Path, rank: int) -> int:
    """Tickets given out in the header of a trace, 0 if it is not there yet."""
    try:
        with (folder / f"rank_{rank}.ddptrace").open("rb") as file:
            header = file.read(4096)
    except OSError:
        return 0
    return int.from_bytes(header[256:264], sys.byteorder) if header[:8] == b"DDPTRACE" else 0


def summary_of(out: str) -> dict:
    """The only thing on standard output."""
    return json.loads(out)


# Jobs that fail on purpose, in the middle of real training. They are run by `launch(..., job=...)` in the
# ranks.


def _failing(session: Session, rank: int, fail) -> object:
    """Trains as usual, but calls `fail` on one rank when it has begun its second epoch."""
    if session.place.rank != rank:
        return train_rank(session)

    def build(base):
        model = base()
        calls = []

        def before_forward(module, inputs) -> None:
            del module, inputs
            calls.append(None)
            if len(calls) == 30:
                fail()

        model.register_forward_pre_hook(before_forward)
        return model

    def prepare(settings):
        work = session.prepare(settings)
        return replace(work, build=partial(build, work.build))

    return train_rank(replace(session, prepare=prepare))


def raises_value_error(session: Session):
    """Rank 1 fails with an error of its own."""

    def fail() -> None:
        raise ValueError("this sample is no digit")

    return _failing(session, 1, fail)


def exits_quietly(session: Session):
    """Rank 1 leaves with exit code 7 and without a word."""
    return _failing(session, 1, lambda: os._exit(7))


def is_killed(session: Session):
    """Rank 0 is killed at any moment of the training."""

    def fail() -> None:
        delay_s = random.uniform(0, 1.5)
        print("killed after", delay_s)
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()

    return _failing(session, 0, fail)


def exits_as_if_done(session: Session):
    """Rank 0 leaves with exit code 0 in the middle."""
    return _failing(session, 0, lambda: os._exit(0))


def all_raise(session: Session):
    """Every rank fails by itself at the same moment."""

    def fail() -> None:
        raise ZeroDivisionError(f"as on every rank, here {session.place.rank}")

    return _failing(session, session.place.rank, fail)


def gets_stuck(session: Session):
    """Rank 1 does not come to the next all-reduce."""

    def oversleep() -> None:
        time.sleep(600)

    return _failing(session, 1, oversleep)


def is_stopped(session: Session):
    """Rank 1 is stopped by a signal."""
    return _failing(session, 1, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def nobody_notices(session: Session):
    """Rank 1 dies at once, and rank 0 never gets an error: as after TerminateProcess on Windows, and hard to end."""
    if session.place.rank == 1:
        os._exit(9)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def says_connection_error(session: Session):
    """Rank 1 fails with what looks like a victim's error, while nobody else has any reason to fail."""

    def fail() -> None:
        raise ConnectionResetError("Connection reset by peer")

    return _failing(session, 1, fail)


def rank_0_raises(session: Session):
    """Rank 0 fails with an error of its own."""

    def fail() -> None:
        raise ValueError("this sample is no digit")

    return _failing(session, 0, fail)


def join_main(job: str, url: str, rank: str) -> None:
    """Joins as one of two ranks with a job of this file."""
    from pyddpdiag.errors import RankFailedError
    from pyddpdiag.ranks.rendezvous import join_url
    from pyddpdiag.train import HookKind, TrainSettings, join

    try:
        join(
            TrainSettings(hook=HookKind.PLAIN, timeout_s=60), join_url(url, 2, int(rank)), job=globals()[job]
        )
    except RankFailedError as error:
        print(error.details, f"error: {error}", sep="\n", file=sys.stderr, flush=True)
        os._exit(2)


if __name__ == "__main__":
    join_main(*sys.argv[1:])
