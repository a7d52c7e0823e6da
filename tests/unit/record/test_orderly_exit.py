"""The end of a process waits for what another hook has begun, and not for ever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pyddpdiag import _native
from pyddpdiag.record import orderly_exit
from pyddpdiag.record.hooks import timed


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
