"""What a Windows build of the native module needs of torch and Python, fetched and unpacked on any system.

From torch's Windows wheel: the headers and the DLLs that the module is linked with. From the running
interpreter: its headers, with a configuration for Windows in place of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIMS = ROOT / "tools" / "windows_shims"
DLLS = ("c10.dll", "torch_cpu.dll", "torch_python.dll")
# Headers and DLLs are the same for every Python; the wheel of this one exists for all torch versions.
WHEEL_PYTHON = "3.11"
# What other tools take for "there is nothing here to check with".
CANNOT = 77


class CannotCheckError(Exception):
    """This machine lacks a program or cannot reach a package index; the message says which."""


@dataclass(frozen=True)
class WindowsTorch:
    """One unpacked torch."""

    version: str
    folder: Path

    @property
    def includes(self) -> list[Path]:
        """Where `#include <torch/...>` is looked up."""
        include = self.folder / "torch" / "include"
        return [include, include / "torch" / "csrc" / "api" / "include"]

    @property
    def dlls(self) -> list[Path]:
        """The libraries whose exports the module may use."""
        return [self.folder / "torch" / "lib" / name for name in DLLS]

    @property
    def objects(self) -> Path:
        """Where the module's object files for this torch are kept."""
        return self.folder / "objects"


def program(name: str, package: str) -> str:
    """The path of a program.

    Raises:
        CannotCheckError: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise CannotCheckError(f"there is no {name} here; on Debian and Ubuntu: apt-get install {package}")
    return found


def fetch(version: str, cache: Path) -> WindowsTorch:
    """The Windows build of torch `version` (as "2.13.0"), downloaded into `cache` if it isn't there.

    Raises:
        CannotCheckError: pip cannot get the wheel.
    """
    torch = WindowsTorch(version, cache / f"torch-{version}")
    if torch.folder.exists():
        return torch
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        command += ["--platform", "win_amd64", "--python-version", WHEEL_PYTHON, "--only-binary", ":all:"]
        done = subprocess.run([*command, f"torch=={version}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotCheckError(
                f"pip cannot download torch {version} for Windows:\n{done.stderr.strip()[-2000:]}"
            )
        [wheel] = Path(folder).glob("torch-*.whl")
        unpacked = Path(folder, "unpacked")
        with zipfile.ZipFile(wheel) as archive:
            wanted = {f"torch/lib/{name}" for name in DLLS}
            archive.extractall(
                unpacked, [n for n in archive.namelist() if n.startswith("torch/include/") or n in wanted]
            )
        unpacked.rename(torch.folder)
    return torch


def python_headers(cache: Path) -> Path:
    """A copy of the running interpreter's headers that says it is for 64-bit Windows.

    A copy, because Python.h takes the pyconfig.h beside itself before any other.

    Raises:
        CannotCheckError: this Python came without headers.
    """
    source = Path(sysconfig.get_paths()["include"])
    if not (source / "Python.h").exists():
        raise CannotCheckError(
            f"Python's headers are not at {source}; on Debian and Ubuntu: apt-get install python3-dev"
        )
    headers = cache / f"python-{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(source, headers, dirs_exist_ok=True)
    shutil.copy2(SHIMS / "pyconfig.h", headers / "pyconfig.h")
    return headers
