"""What the doctor finds on Windows: shown anywhere, on a machine that is made to look so."""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from support.doctored import bad, situation

from pyddpdiag import cli, system
from pyddpdiag.doctor.check import Outcome, Status
from pyddpdiag.doctor.checks import installed, launcher, threads, variables
from pyddpdiag.doctor.checks import torchrun as torchrun_check
from pyddpdiag.doctor.torch_facts import Torch
from pyddpdiag.messages import torchrun
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.shells import Shell, write


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Windows machine on which all is well."""
    monkeypatch.setattr(system, "WINDOWS", True)
    monkeypatch.setattr(system, "STORE_HAS_LIBUV", False)
    for module in (installed, torchrun_check):
        monkeypatch.setattr(module, "find", lambda: Torch("2.13.0", Path()))
    monkeypatch.setattr(installed, "built_with", lambda: "2.13")
    monkeypatch.setattr(installed, "runtime_file", lambda: Path("msvcp140.dll"))
    monkeypatch.setattr(installed, "file_version", lambda path: (14, 44, 35208, 0))


def test_torchrun_on_windows_is_recognised_before_it_fails(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stores ask for libuv whatever USE_LIBUV says; over a file they are not made."""
    environ = {"PET_NPROC_PER_NODE": "2", "USE_LIBUV": "0"}
    (outcome,) = bad(torchrun_check.check, situation(environ))
    set_it, command = (write(line, Shell.POWERSHELL) for line in outcome.lines)
    assert outcome.status is Status.FAIL and "ignore USE_LIBUV" in outcome.text
    assert set_it == "$env:TORCH_DISABLE_SHARE_RDZV_TCP_STORE = '1'"
    assert torchrun.is_torchrun(command.split())
    # Where its line was followed, it is right.
    after = {**environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    assert not torchrun.works_on_windows(command.split(), environ)
    assert torchrun.works_on_windows(command.split(), after)
    assert bad(torchrun_check.check, situation(after)) != []
    assert bad(torchrun_check.check, situation({**after, "PET_RDZV_CONF": "store_type=file"})) == []
    # A rank that it has started, a torch that may do better, and another system: nothing to say.
    assert bad(torchrun_check.check, situation({**environ, "TORCHELASTIC_RUN_ID": "x"})) == []
    monkeypatch.setattr(torchrun_check, "find", lambda: Torch("2.14.0", Path()))
    assert list(torchrun_check.check(situation(environ))) == []
    monkeypatch.setattr(system, "WINDOWS", False)
    assert list(torchrun_check.check(situation(environ))) == []


def test_run_says_before_the_start_that_a_torchrun_will_fail(
    windows: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(
        "pyddpdiag.integrations.recorded_command.run", lambda words, *_, **__: started.append(words) or 0
    )

    def said(*words: str) -> str:
        assert cli.main(["run", "--trace", "none", "--", *words]) == 0
        assert started.pop() == list(words)
        return capsys.readouterr().err

    fails = (
        (r"C:\venv\Scripts\torchrun.exe", "train.py"),
        ("python", "-m", "torch.distributed.run", "train.py"),
    )
    for words in fails:
        assert "This torchrun will fail" in said(*words)
    assert said("python", "train.py", "torchrun") == ""
    works = [write(line, Shell.CMD) for line in torchrun.LINES_ON_WINDOWS][-1].split()
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in said(*works)
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    assert said(*works) == ""
    monkeypatch.setattr(system, "WINDOWS", False)
    assert said(*fails[0]) == ""


@pytest.mark.parametrize("environ", [{}, {"USE_LIBUV": "1"}])
def test_a_healthy_windows_machine_has_no_finding(windows: None, environ: dict[str, str]) -> None:
    """The wheels' default of USE_LIBUV is 0 there, and torchrun's stores do not read it."""
    where = situation(environ)
    checks = (installed.check, launcher.check, torchrun_check.check, variables.check, threads.check)
    assert [outcome for check in checks for outcome in bad(check, where)] == []
    # What would fail is said all the same, to whoever means to use it.
    (outcome,) = torchrun_check.check(where)
    assert "store_type=file" in outcome.text


def test_torchrun_on_windows_gets_the_lines_that_work() -> None:
    text = "DistStoreError: use_libuv was requested but PyTorch was built without libuv support"
    found = explain(text, lines_for=Shell.CMD)
    variable, command = found.lines
    assert variable == 'set "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"'
    assert "--rdzv-backend c10d --rdzv-endpoint D:/rdzv --rdzv-conf store_type=file --rdzv-id ID" in command
    # Nothing that torchrun would not listen to.
    assert not any("USE_LIBUV" in line for line in (found.fix, *found.lines))
    missing = "ValueError: environment variable RANK expected, but not set"
    assert explain(missing, lines_for=Shell.CMD).lines == found.lines
    assert explain(missing, lines_for=Shell.POSIX).lines == ("torchrun --nproc-per-node 2 SCRIPT.py",)


def test_the_version_of_a_windows_library_is_read_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "msvcp140.dll"
    fixed = struct.pack("<IIII", 0xFEEF04BD, 0x10000, (14 << 16) | 29, (30133 << 16) | 2)
    path.write_bytes(b"MZ" + b"\0" * 500 + fixed + b"\0" * 100)
    assert installed.file_version(path) == (14, 29, 30133, 2)
    assert installed._runtime(path).status is Status.WARN
    path.write_bytes(
        b"MZ" + fixed.replace(struct.pack("<I", (14 << 16) | 29), struct.pack("<I", (14 << 16) | 44))
    )
    assert installed._runtime(path).status is Status.PASS
    missing = installed._runtime(None)
    assert missing.status is Status.FAIL and "VCRedist" in write(missing.lines[0], Shell.POWERSHELL)
    path.write_bytes(b"MZ")
    assert installed.file_version(path) is None


def test_the_runtime_that_is_loaded_counts_before_the_one_beside_python_and_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conda has one beside python.exe, which is loaded whatever System32 holds."""
    old, new = ((14 << 16) | minor for minor in (29, 44))

    def library(folder: Path, version: int) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "msvcp140.dll"
        path.write_bytes(struct.pack("<IIII", 0xFEEF04BD, 0x10000, version, 0))
        return path

    conda, windows = tmp_path / "conda", tmp_path / "Windows"
    monkeypatch.setattr(system, "WINDOWS", True)
    monkeypatch.delattr(ctypes, "WinDLL", raising=False)  # on Windows itself: nothing is loaded yet
    monkeypatch.setattr(sys, "base_prefix", str(conda))
    monkeypatch.setenv("SYSTEMROOT", str(windows))

    def runtime() -> Outcome:
        return next(one for one in installed.check(situation()) if one.name == "C++ runtime")

    systems = library(windows / "System32", new)
    assert (runtime().status, str(systems) in runtime().text) == (Status.PASS, True)
    own = library(conda, old)
    assert (runtime().status, str(own) in runtime().text) == (Status.WARN, True)
    assert "beside python.exe" in runtime().fix and runtime().lines == ()
    (conda / "conda-meta").mkdir()
    assert [write(line, Shell.CMD) for line in runtime().lines] == ["conda install vc14_runtime"]

    loaded = library(tmp_path / "loaded", new)

    def name_of(handle: ctypes.c_void_p, path: Any, size: int) -> int:
        assert handle.value == 7 and size == len(path)
        path.value = str(loaded)
        return len(path.value)

    kernel = SimpleNamespace(
        GetModuleHandleW=MagicMock(side_effect={"msvcp140.dll": 7}.get), GetModuleFileNameW=name_of
    )
    monkeypatch.setattr(ctypes, "WinDLL", {"kernel32": kernel}.get, raising=False)
    assert (runtime().status, str(loaded) in runtime().text) == (Status.PASS, True)


def test_torch_of_a_windows_whose_gloo_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WINDOWS", True)
    monkeypatch.setattr(installed, "find", lambda: Torch("2.9.1+cpu", Path()))
    monkeypatch.setattr(installed, "built_with", lambda: "2.9")
    torch = next(outcome for outcome in installed.check(situation()) if outcome.name == "torch")
    assert torch.status is Status.FAIL and "unsupported gloo device" in torch.text
    monkeypatch.setattr(installed, "find", lambda: Torch("2.11.0+cpu", Path()))
    assert next(iter(installed.check(situation()))).status is Status.PASS
