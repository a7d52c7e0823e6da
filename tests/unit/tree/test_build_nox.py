"""noxfile.py's own helpers: what is heard while something is built, and how the module is built."""

import re
import runpy
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="dev.py needs Python 3.11")


class Session:
    """What the helpers use of a nox session."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ran: list[tuple[str, ...]] = []

    def log(self, text: str) -> None:
        self.said.append(text)

    def run(self, *command: str, **options: Any) -> None:
        self.ran.append(command)


def load(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of noxfile.py, with as much of nox as it needs to be read."""
    import tomllib

    def read(path: Path) -> dict[str, Any]:
        return tomllib.loads(path.read_text(encoding="utf-8"))

    def groups(project: dict[str, Any], *names: str) -> list[str]:
        return [str(line) for name in names for line in project["dependency-groups"][name]]

    nox = ModuleType("nox")
    project = SimpleNamespace(load_toml=read, dependency_groups=groups)
    for name, value in {"options": SimpleNamespace(), "project": project, "session": lambda f: f}.items():
        setattr(nox, name, value)
    monkeypatch.setitem(sys.modules, "nox", nox)
    return runpy.run_path(str(ROOT / "noxfile.py"))


def test_a_long_step_says_what_it_does_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    with load(monkeypatch)["timed"](session, "building", "about 2 minutes", every_s=0.05):
        assert session.said == ["building: about 2 minutes"]
        deadline = time.monotonic() + 60
        while len(session.said) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    *so_far, last = session.said[1:]
    assert len(so_far) >= 2 and all(re.fullmatch(r"building: \d+ s so far", line) for line in so_far)
    assert re.fullmatch(r"building: done in \d+ s", last)


def test_a_step_that_fails_is_not_called_done(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    with pytest.raises(RuntimeError), load(monkeypatch)["timed"](session, "building"):
        raise RuntimeError
    assert session.said == ["building"]


def build(
    monkeypatch: pytest.MonkeyPatch, folder: Path, unity: str | None
) -> tuple[list[str], tuple[str, ...]]:
    """What package_venv says, and the command by which it builds the module."""
    monkeypatch.delenv("PYDDPDIAG_UNITY", raising=False)
    if unity is not None:
        monkeypatch.setenv("PYDDPDIAG_UNITY", unity)
    names = load(monkeypatch)
    session = Session()
    venv = names["Venv"]
    made = object.__new__(venv)
    made.session, made.path, made.scripts = session, folder, folder / "bin"
    made.python = made.scripts / "python"
    monkeypatch.setitem(names["package_venv"].__globals__, "torch_venv", lambda *_: made)
    names["package_venv"](session)
    [command] = session.ran
    return session.said, command


def test_the_module_is_built_the_fast_way_unless_a_developer_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = tmp_path / ("Lib/site-packages" if sys.platform == "win32" else "lib/python3.11/site-packages")
    (site / "pyddpdiag").mkdir(parents=True)
    said, command = build(monkeypatch, tmp_path, None)
    assert re.fullmatch(r"building the native module: once, 1 to 2 minutes on two cores", said[0])
    assert "--editable" in command
    # CMake's own default, which tests/unit/tree/test_build_cmake.py holds.
    assert not [word for word in command if "UNITY" in word]

    (site / "pyddpdiag" / "_native.cpython-311-x86_64-linux-gnu.so").touch()
    said, command = build(monkeypatch, tmp_path, "OFF")
    assert said[0] == "building the native module: what has changed"
    assert "--config-settings=cmake.define.PYDDPDIAG_UNITY=OFF" in command
