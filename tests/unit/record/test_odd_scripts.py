"""Scripts that remove what a recorder uses: its training goes on, and nothing is printed."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyddpdiag import system
from pyddpdiag.record import last_words, script_lines
from pyddpdiag.record.collector import CollectorWatch


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
    core: Any = SimpleNamespace(add_collector_pause=lambda _: None)
    watch = CollectorWatch(core)
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
