"""Signals to `pyddpdiag run`: they reach its command, and no process of it outlives the run."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from support import interrupted
from train_support import assert_gone, descendants, finish, started, wait_for

JOB = str(Path(interrupted.__file__))
RUN = (sys.executable, "-m", "pyddpdiag", "run", "--trace", "run", "--")
# Until all of it runs, and has ended: far more than it takes.
LIMIT_S = 120

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no signals to single processes here")


def ready(folder: Path, number: int = interrupted.CHILDREN) -> None:
    wait_for(lambda: len(list(folder.glob("ready-*"))) == number, LIMIT_S, f"{number} processes in {folder}")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_launcher_and_its_ranks(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    with started([*RUN, sys.executable, JOB, "waits"], tmp_path) as process:
        ready(tmp_path)
        below = descendants(process.pid)
        assert len(below) > interrupted.CHILDREN
        process.send_signal(number)
        code, _, err = finish(process, LIMIT_S)
        assert code == 128 + number, err
        assert f"pyddpdiag: run (interrupted by {name})" in err
        assert_gone(below, 0)


def test_torchruns_ranks_end_with_it(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    with started([*RUN, *torchrun, JOB, "rank"], tmp_path, USE_LIBUV="0") as process:
        ready(tmp_path)
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process, LIMIT_S)
        assert code != 0 and "interrupted by SIGINT" in err
        assert_gone(below, 0)


def test_a_second_signal_ends_what_ignores_the_first(tmp_path: Path) -> None:
    with started([*RUN, sys.executable, JOB, "ignores"], tmp_path) as process:
        ready(tmp_path)
        below = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert "a second signal ends it" in next(line for line in process.stderr if "waits" in line)
        assert len(descendants(process.pid)) == len(below)
        process.send_signal(signal.SIGTERM)
        code, _, err = finish(process, LIMIT_S)
        assert code == 128 + signal.SIGKILL, err
        assert_gone(below, 0)


def test_ctrl_c_in_a_terminal_comes_once_and_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    with started([sys.executable, JOB, "terminal", *RUN, sys.executable, JOB, "counts"], tmp_path) as process:
        code, out, _ = finish(process, LIMIT_S)
        assert "SIGINT came 1 times" in out and "interrupted by SIGINT" in out
        assert code == 7
