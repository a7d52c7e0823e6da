"""The tests import the installed package where the tree has no native module, and no test has a time to keep."""

import os
import signal
from pathlib import Path

from hypothesis import settings
from support import ports
from support.installed import prefer_installed


def pytest_configure() -> None:
    ports.know_worker()
    # A pytest that a test starts is no worker of this one: it would not measure, for one.
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        del os.environ[name]
    # Hypothesis fails a case that takes 200 ms: on a busy machine any may.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
    # A shell's background jobs ignore it, and so would all programs that the tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup ignores this one, which Windows lacks.
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is not None and signal.getsignal(hang_up) is signal.SIG_IGN:
        signal.signal(hang_up, signal.SIG_DFL)
    # If none is installed, those that need no native module run with the tree's.
    prefer_installed(Path(__file__).resolve().parents[1])
