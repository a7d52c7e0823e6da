"""Servers that speak Google's, Microsoft's and Windows' protocols: emulators, and Samba.

Each is skipped, with the reason, where its server or client is not installed.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from support.ports import own_port

WAIT_S = 60.0
# Azurite's own, published account.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def serving(command: list[str | Path], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that listens; it and all that it started are gone after the block."""
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
        yield server
    finally:
        # sshd gives each connection a process in a session of its own.
        with suppress(psutil.Error):
            for process in psutil.Process(server.pid).children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
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


S3Server = tuple[dict[str, str], subprocess.Popen[bytes]]


@contextmanager
def s3_serving(folder: Path) -> Iterator[S3Server]:
    """A server that speaks S3: the variables that lead to it, and its process."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    port = own_port()
    start = "from moto.server import main; main()"
    given = {
        "FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "FSSPEC_S3_KEY": "test",
        "FSSPEC_S3_SECRET": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command: list[str | Path] = [sys.executable, "-c", start, "-H", "127.0.0.1", f"-p{port}"]
    with serving(command, port, folder / "log") as process:
        yield given, process


@pytest.fixture(scope="module")
def gs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Not imported before its variables are set: one of them counts at that moment only.
    for name in ("gcsfs", "gcp_storage_emulator"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
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


def sshd(folder: Path, port: int) -> list[str | Path]:
    """The command of a server for sftp, which takes the key `user` in this folder; skips where there is none."""
    pytest.importorskip("paramiko")
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no sshd; on Debian: apt-get install openssh-server")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # for its separation of privileges
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder / 'user.pub'}\nStrictModes no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
    return [program, "-D", "-e", "-f", folder / "config"]


def samba(folder: Path, port: int) -> list[str | Path]:
    """The command of a server for the folder `share` in this one; skips where there is none."""
    pytest.importorskip("smbprotocol")
    program = shutil.which("smbd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or os.geteuid() != 0:
        pytest.skip("smbd takes root; on Debian: apt-get install samba")
    for name in ("share", "state"):
        (folder / name).mkdir(exist_ok=True)
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
    return [program, "--foreground", "--no-process-group", "-s", folder / "smb.conf"]


@pytest.fixture(scope="module")
def smb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, folder = own_port(), tmp_path_factory.mktemp("smb")
    command = samba(folder, port)
    with serving(command, port, folder / "log"):
        yield f"smb://root:secret@127.0.0.1:{port}/traces/runs"
