"""Where the threads of this process are: the one place that takes their frames."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType
from typing import Final

# In these releases Python may collect garbage while it gathers the frames, which can then wait for itself for ever.
_COLLECTS_MEANWHILE: Final = (3, 11) <= sys.version_info < (3, 11, 5)


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by the thread's number."""
    if not (_COLLECTS_MEANWHILE and gc.isenabled()):
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


def main_frame() -> FrameType | None:
    """Where the main thread is; None: it has no frame."""
    return current_frames().get(threading.main_thread().ident or 0)
