"""The doctor as the first thing that a newcomer runs: torch is another one, does not load, or Windows lacks its C++."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.commands import ran
from support.doctored import command, environment, paste

from pyddpdiag import system
from pyddpdiag._loader import built_with
from pyddpdiag.doctor.check import Launch, Situation, Status
from pyddpdiag.doctor.checks import installed
from pyddpdiag.messages.shells import Shell, write

pytestmark = pytest.mark.slow
TIMEOUT_S = 120
LOADS = "def is_gloo_available():\n    return True\n"
# As torch itself says it.
NO_RUNTIME = (
    "raise OSError(\"[WinError 126] The specified module could not be found. Error loading 'C:\\\\\\\\site-packages"
    "\\\\\\\\torch\\\\\\\\lib\\\\\\\\c10.dll' or one of its dependencies.\")\n"
)


def files_of(version: str, starts_with: str = "") -> dict[str, str]:
    """A package that is torch as far as pip and Python see it."""
    info = f"torch-{version}.dist-info"
    return {
        "torch/__init__.py": f"{starts_with}from torch.version import __version__\n",
        "torch/version.py": f"__version__ = '{version}'\ncuda: str | None = None\n",
        "torch/distributed.py": LOADS,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }


def install(folder: Path, version: str, starts_with: str = "") -> None:
    for name, text in files_of(version, starts_with).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def before_all_others(*folders: Path) -> dict[str, str]:
    """The variables with which Python finds what is in these folders first."""
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), environment()["PYTHONPATH"]])}


def checks(variables: dict[str, str]) -> dict[str, Any]:
    done = ran(*command("--json"), env=environment(variables), timeout_s=TIMEOUT_S)
    assert done.stdout, done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)["checks"]}


def test_another_torch_than_the_wheels_is_reported_and_the_line_installs_the_right_one(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pip")
    first, site, wheels, tools = (tmp_path / name for name in ("first", "site", "wheels", "bin"))
    needs = built_with()
    install(site, "2.3.1")
    # pip installs into a folder without taking away what is there: so into one that comes before it.
    variables = before_all_others(first, site)
    before = checks(variables)
    native = before["native module"]
    assert native["status"] == "fail"
    assert f"built for torch {needs}, and torch 2.3.1 is installed" in native["text"]
    assert native["lines"] == [f'pip install "torch=={needs}.*"']
    if system.WINDOWS:
        return
    # The line as it is, for a pip that installs there and knows no other place to take wheels from.
    wheels.mkdir()
    with zipfile.ZipFile(wheels / f"torch-{needs}.0-py3-none-any.whl", "w") as wheel:
        for name, text in files_of(f"{needs}.0").items():
            wheel.writestr(name, text)
    tools.mkdir()
    pip = tools / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n', encoding="utf-8")
    pip.chmod(0o755)
    pip_variables = {
        "PATH": os.pathsep.join([str(tools), os.environ["PATH"]]),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_TARGET": str(first),
    }
    paste(native["lines"], ["true"], {**variables, **pip_variables}, tmp_path)
    after = checks(variables)
    assert (after["native module"]["status"], after["native module"]["text"]) == (
        "pass",
        f"built for torch {needs}",
    )


def test_a_torch_whose_libraries_do_not_load_is_explained(tmp_path: Path) -> None:
    install(tmp_path, f"{built_with()}.0", NO_RUNTIME)
    loads = checks(before_all_others(tmp_path))["torch loads"]
    assert loads["status"] == "fail" and "WinError 126" in loads["text"]
    assert loads["lines"]


def test_a_windows_without_the_runtime_gets_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WINDOWS", True)
    monkeypatch.setenv("SYSTEMROOT", str(tmp_path))
    monkeypatch.setattr(installed, "loaded", lambda name: None)
    monkeypatch.setattr(installed, "beside_python", lambda: tmp_path)
    outcomes = {one.name: one for one in installed.check(Situation({}, Launch(), None, "", Shell.POWERSHELL))}
    runtime = outcomes["C++ runtime"]
    assert runtime.status is Status.FAIL and "msvcp140.dll is not installed" in runtime.text
    assert [write(line, Shell.CMD) for line in runtime.lines] == [
        "winget install --id Microsoft.VCRedist.2015+.x64"
    ]
    # Beside it, everything else is reported as on any system.
    assert {"torch", "native module", "backend"} <= set(outcomes)
