"""Traces to and from real servers: one that speaks S3, and sshd for sftp. `python3 dev.py collecting` runs this."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from collecting.conftest import configured, s3_serving, serving, sshd
from support.commands import ran
from support.contents import contents
from support.ports import own_port
from support.trace_writer import write_training

from pyddpdiag.cli import main
from pyddpdiag.errors import RemoteError
from pyddpdiag.remote import carrier as carrying
from pyddpdiag.remote.carrier import Carrier
from pyddpdiag.remote.copy import at_hand, copied
from pyddpdiag.remote.place import Place

Served = tuple[str, subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with s3_serving(tmp_path_factory.mktemp("s3")) as (given, process), configured(given):
        yield "s3://traces/runs", process


@pytest.fixture(scope="module")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, port = tmp_path_factory.mktemp("sshd"), own_port()
    command = sshd(folder, port)
    with serving(command, port, folder / "log") as process, configured({}):
        from fsspec.config import conf

        conf["sftp"] = {"key_filename": str(folder / "user"), "allow_agent": False, "look_for_keys": False}
        yield f"sftp://{getpass.getuser()}@127.0.0.1:{port}{folder / 'runs'}", process


@pytest.fixture(params=["s3", "sftp"])
def server(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_training(tmp_path / "run")
    return tmp_path / "run"


def content(folder: Path) -> dict[str, bytes]:
    return contents(folder.iterdir())


def test_there_and_back(run: Path, server: Served, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{server[0]}/whole"
    assert main(["collect", str(run), "--into", url]) == 0
    with at_hand(url) as folder:
        assert content(folder) == content(run)
    capsys.readouterr()
    assert main(["report", url, "--json"]) == 0
    far = capsys.readouterr().out
    assert main(["report", str(run), "--json"]) == 0
    near = capsys.readouterr().out
    assert [line for line in far.splitlines() if '"folder"' not in line] == [
        line for line in near.splitlines() if '"folder"' not in line
    ]


def test_pieces_while_it_runs(run: Path, server: Served) -> None:
    place = Place(f"{server[0]}/pieces")
    with (run / "rank_0.ddptrace").open("r+b") as file:
        file.truncate(2**21)
    carrier = Carrier(run, place, every_s=1)
    carrier.sync()
    with copied(place.url) as copy:
        assert content(copy.folder) == content(run)
        with (run / "rank_0.ddptrace").open("r+b") as file:
            file.seek(2**20 + 7)
            file.write(b"x")
        carrier.sync()
        copy.refresh()
        assert content(copy.folder) == content(run)
    assert not carrier.finish().trouble
    assert place.folders() == []
    with at_hand(place.url) as folder:
        assert content(folder) == content(run)


def test_two_runs_at_one_place(run: Path, server: Served) -> None:
    place = Place(f"{server[0]}/two")
    assert not Carrier(run, place).finish().trouble
    for trace in run.glob("*.ddptrace"):
        with trace.open("r+b") as file:
            file.seek(48)
            file.write(b"another run's id")
    assert "another run" in Carrier(run, place).finish().trouble


def test_a_server_that_is_gone_loses_nothing(
    run: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, not ended: it takes connections and answers nothing."""
    import signal

    monkeypatch.setattr(carrying, "PAUSE_S", 0.0)
    monkeypatch.setattr("pyddpdiag.remote.place.LEAST_RATE", 2**40)
    url, process = server
    place = Place(f"{url}/gone", limit_s=10)
    before = content(run)
    children = ran("pgrep", "-P", str(process.pid)).stdout.split()
    stopped = [process.pid, *map(int, children)]
    place._limit_s = 1.0
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert "no answer within 1 s" in Carrier(run, place).finish().trouble
        with pytest.raises(RemoteError):
            place.sizes()
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert content(run) == before
