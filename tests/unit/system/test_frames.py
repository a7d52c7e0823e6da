"""The frames of this process's threads."""

import gc
import sys
import threading
from pathlib import Path

import pytest

import pyddpdiag
from pyddpdiag.system import frames


@pytest.mark.parametrize("collects", [False, True])
def test_the_main_threads_frame_is_seen_from_another_one(
    monkeypatch: pytest.MonkeyPatch, collects: bool
) -> None:
    monkeypatch.setattr(frames, "_COLLECTS_MEANWHILE", collects)
    found: list[object] = []

    def look() -> None:
        frame = frames.main_frame()
        while frame is not None:
            found.append(frame.f_code)
            frame = frame.f_back

    beside = threading.Thread(target=look)
    beside.start()
    beside.join()
    assert sys._getframe().f_code in found
    assert gc.isenabled()


def test_nothing_is_collected_meanwhile_where_that_can_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_COLLECTS_MEANWHILE", True)
    seen: list[bool] = []
    monkeypatch.setattr(sys, "_current_frames", lambda: seen.append(gc.isenabled()) or {})
    frames.current_frames()
    gc.disable()
    try:
        frames.current_frames()
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert seen == [False, False]


def test_nobody_else_takes_frames() -> None:
    package = Path(pyddpdiag.__file__).parent
    others = [
        path.name
        for path in package.rglob("*.py")
        if path.name != "frames.py" and "_current_frames" in path.read_text(encoding="utf-8")
    ]
    assert others == []
