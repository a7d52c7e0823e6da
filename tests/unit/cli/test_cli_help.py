"""What a newcomer sees first: --help and --version."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import pyddpdiag
from pyddpdiag.cli import main

FIRST = ["--nproc", "--arch", "--data", "--hook", "--epochs", "--trace"]


def test_the_options_that_matter_come_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    first, _, rest = text.partition(" Training ")
    assert sorted(re.findall(r"^\W*(--[a-z-]+)", first, flags=re.MULTILINE)) == sorted([*FIRST, "--help"])
    for panel in ("Checkpoints", "Ranks started elsewhere", "Network", "Scaling and output"):
        assert f" {panel}" in rest
    assert "--dist-url" in rest
    # Square brackets are markup to rich: what stands in them is gone.
    assert "Default: 2." in first


def test_version_names_the_tool_and_both_torches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pyddpdiag {pyddpdiag.__version__}"
    assert lines[1].startswith("native module: ")
    assert lines[2].startswith("torch")


def test_version_imports_no_torch() -> None:
    program = (
        "import sys; from pyddpdiag.cli import main; code = main(['--version']); "
        "assert 'torch' not in sys.modules and code == 0"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("native", "torch", "said"),
    [
        ("2.13", "2.13.0+cpu", "torch 2.13.0+cpu"),
        ("2.13", "2.12.1", "torch 2.12.1: does not fit; 'pip install torch==2.13.*' does"),
        ("2.13", None, "torch: not installed; 'pip install torch==2.13.*' fits"),
        (None, "2.13.0", "torch 2.13.0"),
        (None, None, "torch: not installed"),
    ],
)
def test_version_says_what_does_not_fit(
    native: str | None, torch: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    from pyddpdiag import versions
    from pyddpdiag.errors import NativeModuleError

    def built_with() -> str:
        if native is None:
            raise NativeModuleError("none")
        return native

    def version(name: str) -> str:
        if torch is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return torch

    monkeypatch.setattr(versions, "built_with", built_with)
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert versions.versions().splitlines()[2] == said
