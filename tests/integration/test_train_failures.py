"""Ranks that fail, die or get stuck in the middle of real training."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
import train_support as support
from train_support import (
    START_S,
    assert_gone,
    command,
    descendants,
    finish,
    ranks_of,
    records_published,
    started,
    wait_for,
)

from pyddpdiag.errors import RankFailedError
from pyddpdiag.ranks.session import Joined
from pyddpdiag.train import HookKind, TrainSettings, launch

pytestmark = pytest.mark.usefixtures("forked_launches")
LONG = ("--epochs", 500, "--batch-size", 128, "--timeout", 200)
# Ending everything after a failure takes at most this long on a busy machine, which is less than the timeouts above.
SECONDS = 60


def launch_failing(job, folder: Path, timeout_s: float = 60, epochs: int = 10) -> RankFailedError:
    """Runs a job that fails; the error, after looking that no process is left and traces are there."""
    with pytest.raises(RankFailedError) as caught:
        launch(TrainSettings(trace=str(folder), timeout_s=timeout_s, epochs=epochs), 2, job=job)
    assert not ranks_of(os.getpid())
    for rank in range(2):
        assert records_published(folder, rank) > 0
    return caught.value


def test_an_exception_is_shown_with_its_traceback_first_and_its_victim_in_a_line(tmp_path: Path) -> None:
    error = launch_failing(support.raises_value_error, tmp_path / "t")
    assert error.rank == 1
    reason, *others = error.message.splitlines()
    assert reason == "rank 1 failed with ValueError: this sample is no digit"
    assert error.details.startswith("Traceback") and error.details.endswith(
        "ValueError: this sample is no digit"
    )
    assert len(others) == 1 and others[0].startswith("  rank 0 went down with it: ")
    assert len(others[0]) < 160


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (support.exits_quietly, "rank 1 ended with exit code 7 and no error message."),
        (support.exits_as_if_done, "rank 0 ended with exit code 0 before its job was done."),
    ],
)
def test_a_rank_that_leaves_without_a_word_is_named(job, reason: str, tmp_path: Path) -> None:
    assert launch_failing(job, tmp_path / "t").message.splitlines()[0] == reason


def test_ranks_that_all_fail_by_themselves_are_all_named(tmp_path: Path) -> None:
    first, second = launch_failing(support.all_raise, tmp_path / "t").message.splitlines()
    assert "ZeroDivisionError" in first and "also" in second and "ZeroDivisionError" in second
    assert {first[:6], second.strip()[6:12]} == {"rank 0", "rank 1"}


def test_a_connection_error_without_another_cause_is_not_explained_away(tmp_path: Path) -> None:
    error = launch_failing(support.says_connection_error, tmp_path / "t")
    assert error.message.startswith("rank 1 failed with ConnectionResetError")
    assert error.rank is None
    assert "which rank failed first is unknown" in error.message


def test_a_death_is_reported_in_seconds_though_the_survivor_never_gets_an_error(tmp_path: Path) -> None:
    begin = time.monotonic()
    begun: list[float] = []
    with pytest.raises(RankFailedError) as caught:
        launch(
            TrainSettings(hook=HookKind.PLAIN, timeout_s=600),
            2,
            job=support.nobody_notices,
            on_event=lambda event: begun.append(time.monotonic()) if isinstance(event, Joined) else None,
        )
    # From when the ranks were ready: loading torch takes its own time.
    assert time.monotonic() - max(begun, default=begin) < SECONDS
    assert caught.value.rank == 1
    assert caught.value.message.splitlines() == [
        "rank 1 ended with exit code 9 and no error message.",
        "  rank 0 had noticed nothing yet and was ended.",
    ]
    assert not ranks_of(os.getpid())


def test_a_stuck_rank_is_named_with_its_stack(tmp_path: Path) -> None:
    error = launch_failing(support.gets_stuck, tmp_path / "t", timeout_s=6)
    assert error.rank == 1
    assert error.message.startswith("rank 1 did not take part in time")
    assert "in oversleep" in error.details
    # Gloo says the first to the bucket that it waited for, and the second to those queued behind it.
    said = error.message.splitlines()[1]
    assert "Timed out waiting" in said or "Application timeout caused pair closure" in said


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to kill with")
def test_a_killed_rank_is_named_and_takes_the_others_down(tmp_path: Path) -> None:
    error = launch_failing(support.is_killed, tmp_path / "t", epochs=500)
    first, *survivors = error.message.splitlines()
    assert (error.rank, first) == (0, "rank 0 was killed by signal 9 (SIGKILL).")
    # Named as such, whether their errors had come by then or not.
    assert len(survivors) == 1 and survivors[0].startswith("  rank 1 "), error.message
    assert "went down with it" in survivors[0] or "had noticed nothing yet" in survivors[0]


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be stopped by a signal")
def test_a_stopped_rank_is_named(tmp_path: Path) -> None:
    error = launch_failing(support.is_stopped, tmp_path / "t", timeout_s=6)
    assert error.rank == 1
    assert error.message.startswith("rank 1 did not take part in time")
    assert error.details == "" and "did not even answer" in (error.hint or "")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to kill with")
def test_a_rank_that_is_killed_while_it_starts_is_named(tmp_path: Path) -> None:
    with started(command(*LONG, "--hook", "plain"), tmp_path) as process:
        wait_for(lambda: len(ranks_of(process.pid)) == 2, START_S, "ranks started")
        time.sleep(random.uniform(0, 1))
        family = descendants(process.pid)
        ranks_of(process.pid)[1].kill()
        code, _, err = finish(process, SECONDS)
        assert_gone(family)
    assert code == 2
    assert "rank 1 was killed by signal 9 (SIGKILL)." in err


def rendezvous_folders(folder: Path) -> list[Path]:
    return list(folder.glob("pyddpdiag-rendezvous-*"))


def test_ranks_do_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    folder = tmp_path / "t"
    with started(
        command(*LONG, "--trace", folder), tmp_path, TMPDIR=str(temporary), TEMP=str(temporary)
    ) as process:
        # Of both: one rank may have recorded less than the other one so far.
        wait_for(
            lambda: all(records_published(folder, rank) > 50 for rank in range(2)),
            START_S,
            "training under way",
        )
        family = descendants(process.pid)
        assert len(ranks_of(process.pid)) == 2
        assert rendezvous_folders(temporary)
        process.kill()
        assert_gone(family)
    assert not rendezvous_folders(temporary)
    assert all(records_published(folder, rank) > 50 for rank in range(2))


def test_ranks_do_not_outlive_a_launcher_that_is_killed_while_they_start(tmp_path: Path) -> None:
    with started(command(*LONG, "--hook", "plain"), tmp_path) as process:
        wait_for(lambda: len(ranks_of(process.pid)) == 2, START_S, "ranks started")
        family = descendants(process.pid)
        process.kill()
        assert_gone(family)


@pytest.mark.skipif(sys.platform == "win32", reason="a console of its own is needed to send Ctrl-C there")
@pytest.mark.parametrize(("stage", "whole_group"), [("starting", False), ("training", True)])
def test_ctrl_c_leaves_no_process_and_one_line(stage: str, whole_group: bool, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    folder = tmp_path / "t"
    with started(command(*LONG, "--trace", folder), tmp_path, TMPDIR=str(temporary)) as process:
        if stage == "starting":
            wait_for(lambda: len(ranks_of(process.pid)) >= 1, START_S, "a rank started")
            time.sleep(random.uniform(0, 1))
        else:
            wait_for(lambda: records_published(folder, 1) > 50, START_S, "training under way")
        family = descendants(process.pid)
        if whole_group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        code, out, err = finish(process, SECONDS)
        assert_gone(family)
    assert code == 130
    assert out == ""
    assert [line for line in err.splitlines() if "Interrupted" in line] == [
        "Interrupted: all ranks have been ended."
    ]
    assert "Traceback" not in err and "KeyboardInterrupt" not in err
    assert not rendezvous_folders(temporary)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there before it can do anything")
def test_a_terminated_launcher_takes_its_ranks_along(tmp_path: Path) -> None:
    with started(command(*LONG, "--hook", "plain"), tmp_path) as process:
        wait_for(lambda: len(ranks_of(process.pid)) == 2, START_S, "ranks started")
        family = descendants(process.pid)
        process.terminate()
        code, _, err = finish(process, SECONDS)
        assert_gone(family)
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in err


def test_nothing_of_these_tests_is_left() -> None:
    assert not ranks_of(os.getpid())
