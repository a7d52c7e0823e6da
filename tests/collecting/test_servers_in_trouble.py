"""Servers that end and come back while a run goes on, and servers whose disk is full: sshd for sftp, and Samba."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from collecting.conftest import samba, serving, sshd
from support.commands import ran
from support.ports import own_port

from pyddpdiag.pipeline import load_report

WAIT_S = 90.0
SCRIPT = """
import time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
enough = torch.zeros(1)
while not enough:
    for _ in range(10):
        ddp(torch.rand(2, 8)).sum().backward()
        time.sleep(0.02)
    enough += Path("enough").exists()
    dist.broadcast(enough, 0)
dist.destroy_process_group()
print("trained to its end")
"""


@dataclass(frozen=True)
class Server:
    """What runs as long as a block of `up` does; `folder` on this machine is where its `url` leads."""

    url: str
    folder: Path
    up: Callable[[], AbstractContextManager[None]]


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Path]:
    """The server's disk, of a size of its own."""
    folder = tmp_path / "server" / "share"
    folder.mkdir(parents=True)
    if os.geteuid() != 0:
        pytest.skip("a disk of its own takes root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def room(folder: Path, size: str) -> None:
    """Gives the server's disk this size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)


@pytest.fixture
def sftp(share: Path) -> Iterator[Server]:
    folder, port = share.parent, own_port()
    command = sshd(folder, port)
    # A file for fsspec, as users have it: the ranks' command reads it, too.
    (folder / "fsspec").mkdir()
    (folder / "fsspec" / "conf.ini").write_text(
        f"[sftp]\nkey_filename = {folder / 'user'}\nallow_agent =\nlook_for_keys =\n"
    )
    yield Server(
        f"sftp://{getpass.getuser()}@127.0.0.1:{port}{share}",
        share,
        lambda: serving(command, port, folder / "log"),
    )


@pytest.fixture
def smb(share: Path) -> Iterator[Server]:
    port = own_port()
    command = samba(share.parent, port)
    yield Server(
        f"smb://root:secret@127.0.0.1:{port}/traces",
        share,
        lambda: serving(command, port, share.parent / "log"),
    )


@pytest.fixture(params=["sftp", "smb"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@contextmanager
def training(server: Server, folder: Path) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """A run whose pieces are brought, and what its command has said so far; it trains until a file says so."""
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    options = ["--trace", f"{server.url}/first", "--sync-every", "1", "--nproc", "2"]
    env = {**os.environ, "FSSPEC_CONFIG_DIR": str(server.folder.parent / "fsspec")}
    said = folder / "said"
    with said.open("w") as errors:
        run = subprocess.Popen(
            [sys.executable, "-m", "pyddpdiag", "run", *options, "--", "train.py"],
            cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, start_new_session=True,
        )  # fmt: skip
        try:
            yield run, lambda: " ".join(said.read_text(encoding="utf-8").split())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def wait_until(what: Callable[[], object], why: Callable[[], str]) -> None:
    until = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < until, why()
        time.sleep(0.1)


def test_a_server_that_ends_and_comes_back_in_mid_run(server: Server, tmp_path: Path) -> None:
    """Its connections are lost with it; pieces come over new ones, and in the end everything is there."""
    here, there = tmp_path / "here", server.folder / "first"
    here.mkdir()
    index = there / "rank_0.ddptrace.live" / "index.json"
    with training(server, here) as (run, said):
        with server.up():
            wait_until(index.exists, said)
        wait_until(lambda: "It is tried again." in said(), said)
        before = index.stat().st_mtime_ns
        with server.up():
            wait_until(lambda: index.stat().st_mtime_ns > before, said)
            (here / "enough").touch()
            out, _ = run.communicate(timeout=WAIT_S)
        assert run.returncode == 0 and out.count("trained to its end") == 2, said()
        assert "Traceback" not in said() and "not all was brought" not in said(), said()
    assert not list(here.glob("**/*.ddptrace")) and not list(there.glob("*.live"))
    report = load_report(there)
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert all(finding.severity != "error" for finding in report.verdict.findings), report.verdict


def test_a_server_whose_disk_is_full(server: Server, tmp_path: Path) -> None:
    """The training does not notice. What has not come stays here, and is brought when there is room."""
    here, there = tmp_path / "here", server.folder / "first"
    here.mkdir()
    room(server.folder, "512k")
    with server.up(), training(server, here) as (run, said):
        wait_until(lambda: "It is tried again." in said(), said)
        (here / "enough").touch()
        out, _ = run.communicate(timeout=WAIT_S)
        assert run.returncode == 0 and out.count("trained to its end") == 2, said()
        assert "room" in said() and "Traceback" not in said(), said()
        kept = list(here.glob("**/*.ddptrace"))
        assert len(kept) == 2, said()
        room(server.folder, "256m")
        command = [
            *(sys.executable, "-m", "pyddpdiag", "collect", str(kept[0].parent), "--into"),
            f"{server.url}/first",
        ]
        env = {**os.environ, "FSSPEC_CONFIG_DIR": str(server.folder.parent / "fsspec")}
        again = ran(*command, env=env, timeout_s=WAIT_S)
        assert again.returncode == 0, again
    assert [rank.rank for rank in load_report(there).ranks] == [0, 1]
