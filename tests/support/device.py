"""The device for tests (tests/device): builds it, loads it, and makes it late."""

from __future__ import annotations

import shutil
import types
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from support.commands import ran

SOURCES = Path(__file__).parents[1] / "device"
NAME = "late"


def compiler() -> str:
    """The C++ compiler; empty: there is none, or none that builds what this torch loads."""
    return shutil.which("c++") or ""


def build(folder: Path) -> Path:
    """The library that `load` takes."""
    library = folder / "libtest_device.so"
    include = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    link = [f"-L{path}" for path in cpp_extension.library_paths()]
    objects = []
    # One after the other: torch's headers take much memory.
    for source in sorted(SOURCES.glob("*.cpp")):
        objects.append(folder / f"{source.stem}.o")
        _run(compiler(), "-std=c++20", "-O0", "-fPIC", *include, "-c", str(source), "-o", str(objects[-1]))
    _run(
        compiler(),
        "-shared",
        *map(str, objects),
        *link,
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        "-o",
        str(library),
    )
    return library


def _run(*command: str) -> None:
    done = ran(*command)
    assert done.returncode == 0, done.stderr


def load(library: Path) -> Any:
    """Loads the device into this process; its own operations."""
    torch.ops.load_library(str(library))
    # torch asks a module of the device's name whether it is there.
    module = types.ModuleType(f"torch.{NAME}")
    vars(module).update(
        is_available=lambda: True,
        device_count=lambda: 1,
        _is_in_bad_fork=lambda: False,
        manual_seed_all=lambda seed: None,
    )
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, module)
    return torch.ops.pyddpdiag_test_device
