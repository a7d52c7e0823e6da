"""What is installed: torch, the native module that fits it, its backends, and the C++ runtime under Windows."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyddpdiag import system
from pyddpdiag._loader import built_with
from pyddpdiag.doctor.check import Outcome, Situation, failed, passed, warned
from pyddpdiag.doctor.torch_facts import Torch, find
from pyddpdiag.errors import NativeModuleError
from pyddpdiag.messages.shells import Run

NAME: Final = "msvcp140.dll"
_SIGNATURE = struct.pack("<I", 0xFEEF04BD)
_LONGEST_PATH = 32768


def beside_python() -> Path:
    """The folder of python.exe, also within a virtual environment: Windows looks there first."""
    return Path(sys.base_prefix)


def runtime_file() -> Path | None:
    """The file that is loaded already, else the first where Windows would look: beside python.exe, in System32."""
    system32 = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"
    places = (loaded(NAME), beside_python() / NAME, system32 / NAME)
    return next((place for place in places if place is not None and place.is_file()), None)


def loaded(name: str) -> Path | None:
    """The file of a library that this process has loaded; None if it has not, and on other systems."""
    library = vars(ctypes).get("WinDLL")
    if library is None:
        return None
    kernel: Any = library("kernel32")
    kernel.GetModuleHandleW.restype = ctypes.c_void_p
    handle = kernel.GetModuleHandleW(name)
    path = ctypes.create_unicode_buffer(_LONGEST_PATH)
    if not handle or not kernel.GetModuleFileNameW(ctypes.c_void_p(handle), path, _LONGEST_PATH):
        return None
    return Path(path.value)


def file_version(path: Path) -> tuple[int, int, int, int] | None:
    """The version in a Windows library's resources; None if there is none.

    Raises:
        OSError: the file cannot be read.
    """
    content = path.read_bytes()
    at = content.find(_SIGNATURE)
    if at < 0 or len(content) < at + 16:
        return None
    _, _, high, low = struct.unpack_from("<IIII", content, at)
    return high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF


# An older msvcp140.dll makes the first all-reduce hang, or torch fail to load.
_OLDEST_RUNTIME = (14, 40)
_CONDA = Run("conda install vc14_runtime")
_RUNTIME = Run("winget install --id Microsoft.VCRedist.2015+.x64")


def check(situation: Situation) -> Iterator[Outcome]:
    """torch and what it needs."""
    needs = _needs()
    torch = find()
    if torch is None:
        want = f"torch=={needs}.*" if needs else "torch"
        yield failed(
            "torch",
            "torch is not installed in this Python; traces can be read without it.",
            "Install it.",
            Run(f'pip install "{want}"'),
        )
    else:
        yield from _version(torch)
        yield from _native(torch, needs)
        yield _backends(torch)
    if system.WINDOWS:
        yield _runtime(runtime_file())


def _needs() -> str:
    try:
        return built_with()
    except NativeModuleError:
        return ""


def _version(torch: Torch) -> Iterator[Outcome]:
    if system.WINDOWS and (2, 8) <= torch.minor <= (2, 10):
        yield failed(
            "torch",
            f"{torch.version}: Gloo is broken in torch 2.8 to 2.10 on Windows (unsupported gloo device).",
            "Use 2.11 or newer.",
            Run('pip install "torch>=2.11"'),
        )
        return
    note = ""
    if torch.minor < (2, 13):
        note = "; reduce_scatter with ReduceOp.AVG returns sums over Gloo before 2.13: use SUM and divide"
    yield passed("torch", f"{torch.version}, no known fault of Gloo at the start{note}")


def _native(torch: Torch, needs: str) -> Iterator[Outcome]:
    running = ".".join(map(str, torch.minor))
    if not needs:
        yield warned(
            "native module",
            "this installation of pyddpdiag has none: traces can be read, training cannot be recorded.",
            "Install the wheel for your Python, system and torch, or build it in an environment with torch.",
            Run(
                "pip install --no-build-isolation --no-binary pyddpdiag --force-reinstall --no-deps pyddpdiag"
            ),
        )
    elif needs != running:
        yield failed(
            "native module",
            f"it was built for torch {needs}, and torch {torch.version} is installed: recording cannot work.",
            "Install the torch that fits, or the wheel of pyddpdiag for yours.",
            Run(f'pip install "torch=={needs}.*"'),
        )
    else:
        yield passed("native module", f"built for torch {needs}")


def _backends(torch: Torch) -> Outcome:
    """The wheels: Gloo in all of them, NCCL in those for CUDA on Linux, MPI in none."""
    gpu = shutil.which("nvidia-smi") is not None
    nccl = bool(torch.cuda or torch.rocm) and not system.WINDOWS
    if nccl and gpu:
        return passed("backend", "gloo for CPU tensors, nccl for GPU tensors: 'cpu:gloo,cuda:nccl'")
    if system.WINDOWS:
        why = "no wheel for Windows has NCCL"
    elif not (torch.cuda or torch.rocm):
        why = "this torch is a CPU build, without NCCL"
    else:
        why = "NCCL is there, but no NVIDIA GPU"
    return passed("backend", f"gloo: {why}, and no wheel has MPI")


def _runtime(path: Path | None) -> Outcome:
    if path is None:
        return failed(
            "C++ runtime",
            "msvcp140.dll is not installed: torch cannot be loaded.",
            "Install the Visual C++ Redistributable (x64), and start a new shell.",
            _RUNTIME,
        )
    try:
        version = file_version(path)
    except OSError as error:
        return warned(
            "C++ runtime", f"{path} cannot be read: {error.strerror or error}.", "Install it again.", _RUNTIME
        )
    shown = ".".join(map(str, version)) if version is not None else "unknown"
    if version is not None and version[:2] < _OLDEST_RUNTIME:
        text = f"{path} is {shown}, older than torch's own: with such a one the first all-reduce may hang."
        if path.parent == beside_python():
            # An installed redistributable is not looked at.
            return warned(
                "C++ runtime",
                text,
                "It lies beside python.exe and is loaded before the system's: update it there, or use another Python.",
                *([_CONDA] if (path.parent / "conda-meta").is_dir() else []),
            )
        return warned(
            "C++ runtime",
            text,
            "Install the current Visual C++ Redistributable (x64), and start a new shell.",
            _RUNTIME,
        )
    return passed("C++ runtime", f"{path} {shown}")
