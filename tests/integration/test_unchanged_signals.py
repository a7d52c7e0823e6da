"""Signals to `pyddpdiag run`: they reach its command, and no process of it outlives the run."""

import signal
import sys
import time
from pathlib import Path

import psutil
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


def test_a_signal_ends_a_launcher_and_its_ranks(tmp_path: Path) -> None:
    with started([*RUN, sys.executable, JOB, "waits"], tmp_path) as process:
        ready(tmp_path)
        below = descendants(process.pid)
        assert len(below) > interrupted.CHILDREN
        process.send_signal(signal.SIGHUP)
        code, _, err = finish(process, LIMIT_S)
        assert code == 128 + signal.SIGHUP, err
        assert "pyddpdiag (interrupted by SIGHUP): nothing was recorded" in err
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


def left_behind(folder: Path) -> list[psutil.Process]:
    """The processes that said that they run, and still do."""
    pids = (int(path.name.removeprefix("ready-")) for path in folder.glob("ready-*"))
    return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.parametrize("stopped", ["run", "command"])
def test_a_signal_to_one_that_is_stopped_ends_it_once_it_goes_on(tmp_path: Path, stopped: str) -> None:
    with started([*RUN, sys.executable, JOB, "waits"], tmp_path) as process:
        ready(tmp_path)
        below = descendants(process.pid)
        command = psutil.Process(process.pid).children()[0]
        if stopped == "command":
            command.suspend()
        else:
            process.send_signal(signal.SIGSTOP)
            time.sleep(2)  # longer than it waits at once
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        code, _, err = finish(process, LIMIT_S)
        assert code == 128 + signal.SIGTERM and "interrupted by SIGTERM" in err, err
        assert_gone(below, 0)


@pytest.mark.parametrize(("how", "code"), [("3", 3), ("killed", 128 + 9)])
def test_however_a_launcher_ends_nothing_of_it_stays(tmp_path: Path, how: str, code: int) -> None:
    with started([*RUN, sys.executable, JOB, "leaves", how], tmp_path) as process:
        found, _, err = finish(process, LIMIT_S)
        assert left_behind(tmp_path) == []
        assert found == code and "left 2 processes" in err, err


@pytest.mark.parametrize("launcher", ["torchrun", "nproc"])
def test_a_launcher_that_is_killed_leaves_no_rank(tmp_path: Path, launcher: str) -> None:
    torchrun = (*RUN, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    nproc = (*RUN[:-1], "--nproc", "2", "--")
    command = [*(torchrun if launcher == "torchrun" else nproc), JOB, "rank"]
    with started(command, tmp_path, USE_LIBUV="0") as process:
        ready(tmp_path)
        psutil.Process(process.pid).children()[0].kill()
        code, _, err = finish(process, LIMIT_S)
        assert left_behind(tmp_path) == []
        assert code == 128 + signal.SIGKILL and "left 2 processes" in err, err


def test_what_a_command_leaves_meanwhile_is_no_zombie(tmp_path: Path) -> None:
    """Processes whose parents end come to `pyddpdiag run`, which may last for days."""
    script = (
        "import subprocess, time; subprocess.run('true & true &', shell=True); "
        "open('ready-0', 'w').close(); time.sleep(60)"
    )
    with started([*RUN, sys.executable, "-c", script], tmp_path) as process:
        ready(tmp_path, 1)
        wait_for(lambda: len(descendants(process.pid)) == 1, LIMIT_S, "the command alone")


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
