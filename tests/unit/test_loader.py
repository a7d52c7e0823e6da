"""What is said where torch or the native module is missing or of another version."""

from __future__ import annotations

import inspect
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.trace_writer import write_training

import pyddpdiag
from pyddpdiag import _loader
from pyddpdiag.errors import NativeModuleError

pytestmark = pytest.mark.slow
PACKAGE = Path(pyddpdiag.__file__).parent
OTHER_MINOR = "2.11" if _loader.built_with() == "2.12" else "2.12"
OTHER_TORCH = f"""
import sys, types
torch = types.ModuleType("torch")
torch.__version__ = "{OTHER_MINOR}.1"
sys.modules["torch"] = torch
"""
NO_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""
# The finders of editable installs would find the module that the copy is to be without.
PLAIN_FINDERS = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]
"""


def python(folder: Path, *parts: str, arguments: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Runs these lines in a fresh interpreter in `folder`, which is its first place to import from."""
    script = folder / "script.py"
    script.write_text("\n".join(parts), encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The message of the error that ended a run; it must be ours."""
    assert done.returncode == 1, done.stdout + done.stderr
    begin = done.stderr.find("pyddpdiag.errors.NativeModuleError: ")
    assert begin >= 0, done.stderr
    return done.stderr[begin:]


@pytest.fixture
def pure_copy(tmp_path: Path) -> Path:
    """A folder with the package's Python files and no native module."""
    shutil.copytree(
        PACKAGE, tmp_path / "pyddpdiag", ignore=shutil.ignore_patterns("_native*", "_build*", "__pycache__")
    )
    return tmp_path


@pytest.mark.parametrize("line", ["import torch, pyddpdiag", "import torch; from pyddpdiag import Recorder"])
def test_another_minor_of_torch(tmp_path: Path, line: str) -> None:
    message = error_of(python(tmp_path, OTHER_TORCH, line))
    built_with = _loader.built_with()
    assert f"built for torch {built_with}, but torch {OTHER_MINOR}.1 is installed" in message
    assert f"pip install torch=={built_with}.*" in message
    assert f"wheel for torch {OTHER_MINOR}" in message


def test_another_minor_of_torch_imported_afterwards(tmp_path: Path) -> None:
    message = error_of(python(tmp_path, "import pyddpdiag", OTHER_TORCH, "pyddpdiag.Recorder"))
    assert f"but torch {OTHER_MINOR}.1 is installed" in message


@pytest.mark.parametrize(
    "line",
    [
        "from pyddpdiag import Recorder",
        "import pyddpdiag; pyddpdiag.timed_allreduce",
        # Torch is there, so pyddpdiag is imported for recording: said at once.
        "import torch, pyddpdiag",
    ],
)
def test_without_the_native_module(pure_copy: Path, line: str) -> None:
    message = error_of(python(pure_copy, PLAIN_FINDERS, line))
    assert "has no native module (pyddpdiag._native)" in message
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in message
    assert "reinstall the wheel" in message


@pytest.mark.parametrize("name", ["Recorder", "timed_allreduce", "build_config"])
def test_without_torch_recording_says_what_to_install(tmp_path: Path, name: str) -> None:
    message = error_of(python(tmp_path, NO_TORCH, f"from pyddpdiag import {name}"))
    assert "No module named 'torch'" in message
    assert f"pip install 'torch=={_loader.built_with()}.*'" in message


@pytest.mark.parametrize(
    "command", ["train", "train --multiprocessing-distributed", "bench allreduce", "run -- {python} -c 0"]
)
def test_without_torch_a_command_names_it_before_it_starts_ranks(tmp_path: Path, command: str) -> None:
    run = "import pyddpdiag.cli; sys.exit(pyddpdiag.cli.main())"
    done = python(tmp_path, NO_TORCH, run, arguments=command.format(python=sys.executable).split())
    assert done.returncode == (0 if command.startswith("run") else 2), done.stderr
    named = f"recording and training need torch {_loader.built_with()}, which is not installed for {sys.executable}."
    assert done.stderr.count(named) == 1 and f"'torch=={_loader.built_with()}.*'" in done.stderr
    assert "Traceback" not in done.stderr and "rank" not in done.stderr


@pytest.mark.parametrize("native", [True, False])
def test_without_torch_traces_are_read(pure_copy: Path, tmp_path: Path, native: bool) -> None:
    if native:
        shutil.rmtree(pure_copy / "pyddpdiag")
    finders = "" if native else PLAIN_FINDERS
    run = "import pyddpdiag.cli; sys.exit(pyddpdiag.cli.main())"
    done = python(tmp_path, finders, NO_TORCH, run, arguments=["report", "--help"])
    assert done.returncode == 0, done.stderr
    assert "DIR" in done.stdout
    write_training(tmp_path / "run")
    done = python(tmp_path, finders, NO_TORCH, run, arguments=["report", "run", "--all"])
    assert done.returncode in (0, 1), done.stderr
    assert "layer0.weight" in done.stdout


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'timed_alreduce'"):
        _ = pyddpdiag.timed_alreduce  # type: ignore[attr-defined]
    assert set(pyddpdiag.__all__) <= set(dir(pyddpdiag))


@pytest.mark.parametrize(
    ("running", "right"),
    [
        *[("2.13.0+cpu", True), ("2.13", True), ("2.13.1rc1", True), ("2.1.3", False)],
        *[("2.130.0", False), ("3.13.0", False)],
    ],
)
def test_only_major_and_minor_count(running: str, right: bool) -> None:
    if right:
        _loader.check_torch_minor(running, "2.13")
        return
    with pytest.raises(NativeModuleError, match=r"torch 2\.13, but torch " + running.replace(".", r"\.")):
        _loader.check_torch_minor(running, "2.13")


def test_build_config() -> None:
    import torch

    config = pyddpdiag.build_config()
    assert config["torch"] == ".".join(torch.__version__.split(".")[:2]) == _loader.built_with()
    assert str(config["torch_version"]).startswith(f"{config['torch']}.")
    assert config["trace_format"] == "1.5"
    assert config["record_bytes"] == 128
    assert config["compiler"]
    assert config["build_type"]
    assert set(config) == {"torch", "torch_version", "compiler", "build_type", "trace_format", "record_bytes"}


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """Importing `pyddpdiag.flatten`, were there such a module, would put it where the function is looked for."""
    modules = {found.name for found in pkgutil.iter_modules(pyddpdiag.__path__)}
    assert modules & set(pyddpdiag.__all__) == {"errors"}
    assert inspect.ismodule(pyddpdiag.errors)
