"""Real runs to servers that speak Google's, Microsoft's and Windows' protocols: emulators, and Samba.

Each is skipped, with the reason, where its server or client is not installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.ports import own_port

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
# Azurite's own, published account.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def serving(command: list[str | Path], port: int, log: Path) -> Iterator[None]:
    with log.open("ab") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        until = time.monotonic() + WAIT_S
        while True:
            assert server.poll() is None and time.monotonic() < until, log.read_text(errors="replace")[-2000:]
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(WAIT_S)


@contextmanager
def configured(given: dict[str, str]) -> Iterator[None]:
    """With variables for fsspec and its clients, here and in the processes that tests start."""
    from fsspec.config import conf, set_conf_env

    before, kept = dict(os.environ), dict(conf)
    os.environ.update(given)
    set_conf_env(conf)
    try:
        yield
    finally:
        conf.clear()
        conf.update(kept)
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def gs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("gcsfs")
    pytest.importorskip("gcp_storage_emulator")
    port, folder = own_port(), tmp_path_factory.mktemp("gs")
    start = "from gcp_storage_emulator.__main__ import main; main()"
    command: list[str | Path] = [sys.executable, "-c", start, "start", "--host=127.0.0.1", f"--port={port}"]
    command += ["--in-memory", "--default-bucket=traces"]
    given = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "FSSPEC_GS_TOKEN": "anon"}
    given["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # by gRPC, which the emulator does not speak
    with serving(command, port, folder / "log"), configured(given):
        yield "gs://traces/runs"


@pytest.fixture(scope="module")
def az(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("adlfs")
    program = os.environ.get("PYDDPDIAG_AZURITE") or shutil.which("azurite-blob")
    if program is None:
        pytest.skip("no azurite-blob; npm install azurite, and PYDDPDIAG_AZURITE names its program")
    port, folder = own_port(), tmp_path_factory.mktemp("az")
    command: list[str | Path] = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--location", folder, "--skipApiVersionCheck", "--silent"]
    text = (
        f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={AZURE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )
    with serving(command, port, folder / "log"), configured({"AZURE_STORAGE_CONNECTION_STRING": text}):
        import fsspec

        fsspec.filesystem("az").mkdir("traces")
        yield "az://traces/runs"


@pytest.fixture(scope="module")
def smb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("smbprotocol")
    program = shutil.which("smbd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or os.geteuid() != 0:
        pytest.skip("smbd takes root; on Debian: apt-get install samba")
    port, folder = own_port(), tmp_path_factory.mktemp("smb")
    for name in ("share", "state"):
        (folder / name).mkdir()
    state = "".join(
        f"{name} directory = {folder / 'state'}\n" for name in ("private", "lock", "state", "cache", "pid")
    )
    (folder / "smb.conf").write_text(
        f"[global]\nserver role = standalone\nsmb ports = {port}\ninterfaces = 127.0.0.1\n"
        f"bind interfaces only = yes\ndisable netbios = yes\nload printers = no\n{state}"
        f"ncalrpc dir = {folder / 'state'}\nlog file = {folder / 'smbd.log'}\n"
        f"passdb backend = tdbsam:{folder / 'passdb.tdb'}\n"
        f"[traces]\npath = {folder / 'share'}\nread only = no\n"
        f"[locked]\npath = {folder / 'share'}\nread only = yes\n"
    )
    subprocess.run(
        ["smbpasswd", "-c", folder / "smb.conf", "-a", "-s", "root"],
        input=b"secret\nsecret\n", check=True, timeout=WAIT_S, capture_output=True,
    )  # fmt: skip
    command: list[str | Path] = [program, "--foreground", "--no-process-group", "-s", folder / "smb.conf"]
    with serving(command, port, folder / "log"):
        yield f"smb://root:secret@127.0.0.1:{port}/traces/runs"


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
        sys.executable,
        "-m",
        "pyddpdiag",
        "run",
        "--trace",
        url,
        "--sync-every",
        "1",
        "--nproc",
        "2",
        "--",
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
    ended = subprocess.run(
        command(f"{url}/whole", script),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
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
