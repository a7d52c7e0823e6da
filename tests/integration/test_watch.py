"""`pyddpdiag watch --json` beside a real run: started before it, ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.stuck import training


@pytest.mark.skipif(sys.platform == "win32", reason="a console of its own is needed to send Ctrl-C there")
def test_it_waits_for_the_run_and_follows_it(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "pyddpdiag", "watch", str(tmp_path / "run"), "--json"),
        *("--interval", "0.5"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            assert (first["status"], first["run_id"]) == ("waiting", "")
            with training(tmp_path, 2):
                seen: dict[str, Any] = first
                steps: list[int] = []
                while len(steps) < 4:
                    seen = json.loads(process.stdout.readline())
                    if seen["status"] == "running" and seen["step_ms"] and seen["steps_per_s"]:
                        steps.append(seen["step"])
                assert steps == sorted(set(steps))
                assert [rank["process"] for rank in seen["ranks"]] == ["running", "running"]
                assert seen["verdict"]["status"] in ("healthy", "findings", "cannot_tell")
                process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert process.stderr is not None and process.stderr.read() == ""
        finally:
            process.kill()
