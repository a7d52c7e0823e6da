"""Real runs to servers that speak Google's, Microsoft's and Windows' protocols: emulators, and Samba."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.commands import ran

from pyddpdiag.cli import main
from pyddpdiag.remote.copy import at_hand
from pyddpdiag.remote.place import Place

# Azure's client warns of every body that is given as bytes.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

WAIT_S = 60.0
SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
for _ in range(100_000 if "long" in sys.argv else 60):
    ddp(torch.ones(2, 8)).sum().backward()
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(params=["gs", "az", "smb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path / "train.py"


def command(url: str, script: Path, *words: str) -> list[str]:
    start = [
        *(sys.executable, "-m", "pyddpdiag", "run", "--trace", url, "--sync-every", "1", "--nproc"),
        *("2", "--"),
    ]
    return [*start, str(script), *words]


def report(where: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    own = ('"folder"', '"silent_ms"')  # the second counts until the moment of reading
    capsys.readouterr()
    main(["report", where, "--json"])
    return [line for line in capsys.readouterr().out.splitlines() if not any(word in line for word in own)]


def test_a_run_and_collect(
    url: str, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = ran(*command(f"{url}/whole", script), cwd=tmp_path, timeout_s=150)
    assert ended.returncode == 0 and "brought to" in ended.stderr, ended.stderr
    assert "not brought" not in ended.stderr and "Traceback" not in ended.stderr
    assert not list(tmp_path.glob("**/*.ddptrace"))
    local = tmp_path / "local"
    with at_hand(f"{url}/whole") as folder:
        shutil.copytree(folder, local)
    assert report(f"{url}/whole", capsys) == report(str(local), capsys)
    assert main(["collect", str(local), "--into", f"{url}/collected"]) == 0
    assert report(f"{url}/collected", capsys) == report(str(local), capsys)


def test_killed_ranks(url: str, script: Path, tmp_path: Path) -> None:
    start = subprocess.Popen(
        command(f"{url}/killed", script, "long"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        place, until = Place(f"{url}/killed"), time.monotonic() + WAIT_S
        while len(place.folders()) < 2:
            assert time.monotonic() < until and start.poll() is None
            time.sleep(0.5)
        for process in psutil.Process(start.pid).children(recursive=True):
            if str(script) in process.cmdline():
                process.kill()
        err = start.communicate(timeout=WAIT_S)[1]
    finally:
        start.kill()
    assert "brought to" in err and "Traceback" not in err, err
    assert {"rank_0.ddptrace", "rank_1.ddptrace"} <= place.sizes().keys()
    assert not list(tmp_path.glob("**/*.ddptrace"))
