"""A thread beside the training takes none of its signals, and is not there when the process forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from pyddpdiag import system
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.system.threads import names

FORKS = """
import os, sys, time
from pathlib import Path

# Hooks before a fork run in the reverse of their order.
os.register_at_fork(before=lambda: seen.append(len(list(Path("/proc/self/task").iterdir()))))
seen, looks = [], []

from pyddpdiag.record.side_thread import SideThread

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
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKS], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
