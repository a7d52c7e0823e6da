"""How much of the cores other programs take while the bed makes a run."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest
from bed import beside

BUSY = "import time\nwhile time.process_time() < 0.4: pass"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps no times of a process's ended children")
def test_what_the_runs_own_processes_took_is_its_own_after_they_ended() -> None:
    begin = beside._own_s()
    # A process of a process, as ranks are that a server has forked.
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}], check=True)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert beside._own_s() - begin >= 0.4


def test_the_rest_is_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"busy": 100.0, "own": 20.0, "now": 1000.0}
    monkeypatch.setattr(beside, "_busy_s", lambda: at["busy"])
    monkeypatch.setattr(beside, "_own_s", lambda: at["own"])
    monkeypatch.setattr(time, "monotonic", lambda: at["now"])
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    counted = beside.Beside()
    at.update(busy=130.0, own=40.0, now=1010.0)
    assert counted.share() == pytest.approx(10 / 40)
    # Clocks of the system and of processes tick apart: never less than nothing.
    at.update(busy=110.0)
    assert counted.share() == 0.0
