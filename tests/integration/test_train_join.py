"""Ranks that somebody else starts: by file, by TCP and under torchrun."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.forked_command import Forked, forked
from support.ports import own_port
from train_support import (
    START_S,
    TIMEOUT_S,
    environment,
    finish,
    records_published,
    started,
    summary_of,
    wait_for,
)

SHORT = ("--epochs", 1, "--batch-size", 256, "--timeout", 60)


def ended(commands: Sequence[tuple[object, ...]], cwd: Path) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each, started as forks at once."""
    with ExitStack() as stack:
        processes = [stack.enter_context(forked(words, cwd, environment())) for words in commands]
        return [process.ended(TIMEOUT_S) for process in processes]


def join_all(url: str, ranks: tuple[int, ...], cwd: Path, *options: object) -> list[tuple[int, str, str]]:
    """What these ranks of two end with."""
    return ended([("train", "--dist-url", url, "--rank", r, "--world-size", 2, *options) for r in ranks], cwd)


def test_two_ranks_meet_by_a_file_and_train(tmp_path: Path) -> None:
    path = tmp_path / "meet here"
    ends = join_all(path.as_uri(), (1, 0), tmp_path, *SHORT, "--trace", tmp_path / "t", "--json")
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    assert ends[0][1] == ""  # rank 1 prints nothing
    assert summary_of(ends[1][1])["world_size"] == 2
    assert all(records_published(tmp_path / "t", rank) > 0 for rank in range(2))
    assert not path.exists()


def test_two_ranks_meet_by_tcp_in_rank_0s_trace_folder_and_the_report_is_printed_once(tmp_path: Path) -> None:
    ends = join_all(f"tcp://127.0.0.1:{own_port()}", (0, 1), tmp_path, *SHORT)
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(list(folder.glob("*.ddptrace"))) == 2
    assert "Test accuracy" in ends[0][1] and "bucket" in ends[0][1]
    assert ends[1][1] == ""


def torchrun(*options: object) -> list[str]:
    return [
        *(
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-addr", "127.0.0.1"),
        ),
        *("--master-port", str(own_port()), "-m", "pyddpdiag", "train", *map(str, options)),
    ]


def test_torchrun(tmp_path: Path) -> None:
    with started(torchrun(*SHORT, "--trace", tmp_path / "t", "--json"), tmp_path) as process:
        code, out, err = finish(process)
    assert code == 0, err
    assert summary_of(out)["world_size"] == 2
    assert all(records_published(tmp_path / "t", rank) > 0 for rank in range(2))


def test_missing_rank_0_is_named_after_the_timeout(tmp_path: Path) -> None:
    port = own_port()
    (end,) = join_all(f"tcp://127.0.0.1:{port}", (1,), tmp_path, "--hook", "plain", "--timeout", 3)
    assert end[0] == 2
    assert f"could not reach the store at 127.0.0.1:{port} within 3 s" in end[2]


def test_a_rank_that_cannot_start_tells_the_others_why(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "rank_1.ddptrace").write_text("precious")
    ends = join_all((tmp_path / "meet").as_uri(), (0, 1), tmp_path, *SHORT, "--trace", folder)
    assert [code for code, _, _ in ends] == [2, 2]
    assert "rank 1 cannot start: A trace is in" in ends[0][2]
    assert "--force" in ends[1][2]
    assert (folder / "rank_1.ddptrace").read_text() == "precious"


def test_different_options_are_reported(tmp_path: Path) -> None:
    place = ("train", "--dist-url", (tmp_path / "meet").as_uri(), "--world-size", 2)
    for code, _, err in ended([(*place, "--rank", rank, "--seed", rank) for rank in range(2)], tmp_path):
        assert code == 2
        assert "--seed differs" in err


# Not by TCP and rank 0: it takes the store that holds its reason along.
@pytest.mark.parametrize(
    ("scheme", "job", "culprit"),
    [("tcp", "raises_value_error", 1), ("file", "rank_0_raises", 0), ("file", "raises_value_error", 1)],
)
def test_a_rank_that_fails_tells_the_others_why(scheme: str, job: str, culprit: int, tmp_path: Path) -> None:
    url = (tmp_path / "meet").as_uri() if scheme == "file" else f"tcp://127.0.0.1:{own_port()}"
    script = Path(__file__).with_name("train_support.py")
    ends = ended([(script, job, url, rank) for rank in range(2)], tmp_path)
    assert [code for code, _, _ in ends] == [2, 2]
    reason = f"error: rank {culprit} failed with ValueError: this sample is no digit"
    cause, victim = ends[culprit][2], ends[1 - culprit][2]
    assert cause.index("Traceback") < cause.index(reason)
    assert reason in victim and "Traceback" not in victim
    assert f"rank {1 - culprit} went down with it" in victim


@contextmanager
def two_in_training(folder: Path, timeout_s: int) -> Iterator[list[Forked]]:
    """Ranks that nobody launched, in the middle of training."""
    trace, url = folder / "t", (folder / "meet").as_uri()
    place = ("--dist-url", url, "--world-size", 2)
    options = ("train", *place, "--epochs", 500, "--timeout", timeout_s, "--trace", trace)
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(forked((*options, "--rank", rank), folder, environment()))
            for rank in range(2)
        ]
        wait_for(lambda: records_published(trace, 1) > 50, START_S, "training under way")
        yield ranks


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to kill with")
def test_a_killed_rank_takes_the_others_down(tmp_path: Path) -> None:
    with two_in_training(tmp_path, 200) as ranks:
        ranks[1].process.kill()
        code, _, err = ranks[0].ended(60)
    assert code == 2
    # Both: the one that died, and the one that the error reached.
    assert f"error: rank 1 (pid {ranks[1].process.pid} on " in err and "is gone: its process has ended" in err
    assert "rank 0 went down with it: " in err


@pytest.mark.skipif(sys.platform == "win32", reason="a console of its own is needed to send Ctrl-C there")
def test_ctrl_c_ends_a_rank_that_waits_inside_gloo(tmp_path: Path) -> None:
    with two_in_training(tmp_path, 120) as ranks:
        os.kill(ranks[1].process.pid, signal.SIGSTOP)
        time.sleep(1)  # rank 0 is in its next all-reduce by now
        os.kill(ranks[0].process.pid, signal.SIGINT)
        code, _, err = ranks[0].ended(60)
    assert code == 130
    assert "Interrupted: rank 0 ends." in err and "Traceback" not in err
