"""A recorder's threads and hooks are in nobody's way: at signals, forks and the end, and in odd scripts."""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from support.commands import python

from pyddpdiag import _native, system
from pyddpdiag.record import collector, last_words, orderly_exit, script_lines
from pyddpdiag.record.collector import CollectorWatch
from pyddpdiag.record.hooks import timed
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.system.threads import names

FORKS = """
import os, sys, time
from pathlib import Path

# Hooks before a fork run in the reverse of their order.
os.register_at_fork(before=lambda: seen.append(len(list(Path("/proc/self/task").iterdir()))))
seen, looks = [], []

from pyddpdiag.record import side_thread
from pyddpdiag.record.side_thread import SideThread

side_thread._REST_S = 60.0  # on a full machine a thread may take longer to end than a fork is to wait
side = SideThread("looks", lambda over: over.wait(0.0) or looks.append(over) or over.wait(60), rests_at_forks=True)
for _ in range(3):
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    side.go_on()
until = time.monotonic() + 60
while len(looks) < 2 and time.monotonic() < until:
    time.sleep(0.001)
ran = side._thread.is_alive()
side.close()
assert (seen, ran, side._thread.is_alive()) == ([1, 1, 1], True, False), (seen, ran)
"""


@pytest.mark.skipif(system.WINDOWS, reason="it sends no signals to threads")
def test_signals_are_left_to_the_scripts_own_threads() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    blocked: list[set[int]] = []
    done = threading.Event()

    def look(_: Over) -> None:
        blocked.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        done.set()

    thread = SideThread("looks", look)
    assert done.wait(60)
    thread.close()
    faults = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}
    assert {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPROF} <= blocked[0]
    assert not faults & blocked[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_script_that_joins_all_threads_does_not_wait_for_ours() -> None:
    before, began = threading.enumerate(), threading.Event()

    def look(over: Over) -> None:
        began.set()
        over.wait(60)

    thread = SideThread("looks", look)
    assert began.wait(60)
    assert threading.enumerate() == before and "looks" in names().values()
    thread.close()
    assert "looks" not in names().values()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_thread_that_rests_is_not_there_when_the_process_forks() -> None:
    done = python("-W", "error", "-c", FORKS)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.futures.Future[Any]]:
    """What a hook in the user's script has begun; nobody waits for it, as after a pass that failed."""
    orderly_exit._begun.clear()
    future: torch.futures.Future[Any] = torch.futures.Future()
    monkeypatch.setattr(_native, "timed_foreign", lambda core, bucket, run: run())
    recorder: Any = SimpleNamespace(core=None)
    timed(lambda state, bucket: future, recorder)(None, None)
    yield future
    orderly_exit._begun.clear()


def test_the_end_waits_for_another_hooks_callbacks(begun: torch.futures.Future[Any]) -> None:
    """Without that, Python kills the worker that runs them when it asks for its lock, which aborts the process."""
    ended, waiting = threading.Event(), threading.Event()

    def end() -> None:
        waiting.set()
        orderly_exit._rest(os.getpid())
        ended.set()

    thread = threading.Thread(target=end)
    thread.start()
    assert waiting.wait(60)
    assert not ended.wait(4 * orderly_exit.REST_S)
    begun.set_result(1)
    thread.join(60)
    assert ended.is_set()


def test_the_end_does_not_wait_for_a_rank_that_never_comes(
    begun: torch.futures.Future[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orderly_exit, "WAIT_S", 0.2)
    began = time.monotonic()
    orderly_exit._rest(os.getpid())
    assert time.monotonic() - began >= 0.2 and not begun.done()


def test_what_is_done_is_let_go_with_the_next_bucket(begun: torch.futures.Future[Any]) -> None:
    begun.set_result(1)
    later: torch.futures.Future[Any] = torch.futures.Future()
    orderly_exit.await_at_exit(later)
    assert list(orderly_exit._begun) == [later]
    later.set_result(1)


@pytest.mark.skipif(system.WINDOWS, reason="Windows keeps a folder that a process works in")
def test_the_working_folder_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, file = tmp_path / "gone", tmp_path / "package" / "helper.py"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    script_lines.name_of.cache_clear()
    assert script_lines.name_of(str(file)) == "package/helper.py"
    assert script_lines.name_of("beside/helper.py") == "beside/helper.py"
    script_lines.name_of.cache_clear()


def test_the_collectors_callbacks_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.callbacks[:]
    monkeypatch.setattr(collector._native, "collector_watch", lambda _: lambda *_: None)
    watch = CollectorWatch(MagicMock())
    try:
        gc.callbacks.clear()
        watch.close()
    finally:
        gc.callbacks[:] = before


def test_an_error_in_the_words_on_an_error_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: BaseException) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(last_words, "_arranged", SimpleNamespace(first_time=lambda: True))
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    last_words.arrange(0, Path("runs"), fails)
    error = RuntimeError("Connection closed by peer [127.0.0.1]:1")
    sys.excepthook(RuntimeError, error, None)
    assert "pyddpdiag: rank 0" in capsys.readouterr().err
