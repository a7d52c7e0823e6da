"""The commands of the walk-through, each for its system, as the command line takes them. Needs no torch."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from pyddpdiag import cli
from pyddpdiag.cli import train
from pyddpdiag.messages import torchrun
from pyddpdiag.ranks.rendezvous import FileTarget, Place, Target, TcpTarget
from pyddpdiag.train.settings import TrainSettings

WALK_THROUGH = Path(__file__).resolve().parents[3] / "docs" / "windows-and-linux.md"
WINDOWS = sys.platform == "win32"
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def of_this_system() -> list[str]:
    """The `pyddpdiag train` commands in the tables with a column per system."""
    found: list[str] = []
    column = None
    for line in WALK_THROUGH.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "Windows" in cells and "Linux" in cells:
            column = cells.index("Windows" if WINDOWS else "Linux")
        elif not line.startswith("|"):
            column = None
        elif column is not None:
            found += re.findall(r"`(pyddpdiag train [^`]+)`", cells[min(column, len(cells) - 1)])
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TrainSettings, Place | None]]:
    """What would have been started, instead of starting it."""
    calls: list[tuple[TrainSettings, Place | None]] = []
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(train, "_gpus", lambda: 0)  # would load torch
    monkeypatch.setattr(train, "_join", lambda settings, place, as_json: calls.append((settings, place)))
    monkeypatch.setattr(
        train, "_launch", lambda settings, nproc, as_json, place=None: calls.append((settings, place))
    )
    return calls


def target_of(place: Place | None) -> Target | None:
    return None if place is None else place.target


def test_the_documented_commands_of_this_system_are_understood(
    started: list[tuple[TrainSettings, Place | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [command for command in of_this_system() if "--dist-url file:" in command]
    assert len(commands) >= 2
    for command in commands:
        words = shlex.split(command, posix=not WINDOWS)
        assert cli.main(words[1:]) == 0, capsys.readouterr().err
    file = FileTarget("D:\\pg" if WINDOWS else "/tmp/pg")
    assert [target_of(place) for _, place in started] == [file] * len(commands)
    assert {settings.data for settings, _ in started} >= {"D:\\images" if WINDOWS else "images"}


def test_the_documented_torchrun_is_one_that_works_on_windows() -> None:
    (row,) = [
        line
        for line in WALK_THROUGH.read_text(encoding="utf-8").splitlines()
        if line.startswith("| torchrun |")
    ]
    _, _, windows, linux, _ = row.split("|")
    (name, value), *_ = re.findall(r'`\$env:(\w+)="(\w+)"`', windows)
    (command,) = re.findall(r"`(torchrun [^`]+)`", windows)
    assert torchrun.works_on_windows(command.split(), {name: value})
    assert command.split()[:11] == torchrun.COMMAND_ON_WINDOWS.split()[:11]
    assert torchrun.is_torchrun(linux.strip(" `").split())


def test_tcp_is_the_same_on_both(started: list[tuple[TrainSettings, Place | None]]) -> None:
    url = "tcp://127.0.0.1:29500"
    assert cli.main(["train", "--dist-url", url, "--world-size", "2", "--rank", "1"]) == 0
    assert target_of(started[0][1]) == TcpTarget("127.0.0.1", 29500)
