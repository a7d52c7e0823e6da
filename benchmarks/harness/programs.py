"""Programs that sums in shared memory are compared with: MPI, the same without torch, and what memory allows.

Each is built from `benchmarks/programs` with what is installed, and runs a round whenever it is told to, so that it
takes turns with what is measured in the ranks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).resolve().parents[1] / "programs"
CORE = SOURCES.parents[1] / "csrc"
BUILT = SOURCES.parents[1] / "build" / "benchmarks"
OPEN_MPI, MPICH, LIMIT, FROM_CPP = "Open MPI", "MPICH", "memory limit", "shared memory from C++"
SMALL_PAGES = "shared memory from C++, small pages"
"""The same in pages of 4 KiB, also where there are larger ones."""
FROM_PYTHON = "Open MPI from Python"
"""By mpi4py, whose wheels do not find the MPICH of Debian 12."""
# Begins the program that its arguments name without transparent large pages (41: PR_SET_THP_DISABLE).
_IN_SMALL_PAGES = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) != 0:
    sys.exit("this kernel does not let a process do without large pages")
os.execv(sys.argv[1], sys.argv[1:])
"""
_MEMORY = ["platform/linux.cpp", "platform/linux_shared_*.cpp", "platform/shared_memory.cpp"]
# Of the core, without torch and Python.
_SOURCES = {
    LIMIT: ["memory_limit.cpp", "core/shared/sum.cpp", "core/kernels/fused_*.cpp", *_MEMORY],
    FROM_CPP: [
        "shared_exchange.cpp",
        "core/shared/*.cpp",
        "core/kernels/fused_*.cpp",
        "platform/linux_process_watch.cpp",
        *_MEMORY,
    ],
}
TESTED_CORE = SOURCES.parents[1] / "build" / "dev" / "csrc" / "libddpdiag_core.a"
"""The core as its own tests link it, with fewer optimisations than the package has: not for a measurement."""
# As Debian names them where both are installed.
_SUFFIX = {OPEN_MPI: "openmpi", MPICH: "mpich", FROM_PYTHON: "openmpi"}
_PACKAGES = {
    OPEN_MPI: "openmpi-bin libopenmpi-dev",
    MPICH: "mpich libmpich-dev",
    FROM_PYTHON: "openmpi-bin libopenmpi3",
}


def why_not(name: str) -> str:
    """Why the program cannot be built and run here; empty if it can, or if it is none of these."""
    if name not in (OPEN_MPI, MPICH, LIMIT, FROM_CPP, SMALL_PAGES, FROM_PYTHON):
        return ""
    if sys.platform != "linux":
        return f"{name}: the program is for Linux"
    absent = [tool for tool in _tools(name) if shutil.which(tool) is None]
    if not absent and name == FROM_PYTHON and find_spec("mpi4py") is None:
        return f"{name}: there is no mpi4py here (pip install mpi4py)"
    if not absent:
        return ""
    packages = _PACKAGES.get(name, "g++")
    return f"{name}: there is no {absent[0]} here (Debian: apt-get install {packages})"


def _tools(name: str) -> list[str]:
    if name in (*_SOURCES, SMALL_PAGES):
        return ["c++"]
    build, run = f"mpicxx.{_SUFFIX[name]}", f"mpirun.{_SUFFIX[name]}"
    return [run] if name == FROM_PYTHON else [build, run]


def _build(name: str, core_library: Path | None = None) -> Path:
    """The compiled program; a run finds that of the one before, unless a source has changed."""
    if name == FROM_PYTHON:
        return SOURCES / "mpi_allreduce.py"
    if name == SMALL_PAGES:
        return _build(FROM_CPP, core_library)
    program = BUILT / (name + (" linked" if core_library else "")).replace(" ", "-")
    sources = [*SOURCES.glob("*.?pp"), *CORE.rglob("*.?pp")]
    if program.exists() and program.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return program
    if name in _SOURCES:
        own, *core = _SOURCES[name]
        # The kernels choose the processor's instructions by themselves, as in the package.
        command = ["c++", "-std=c++20", "-pthread", "-O3", f"-I{CORE}", str(SOURCES / own)]
        compiled = [source for pattern in core for source in sorted(CORE.glob(pattern))]
        command += map(str, [core_library] if core_library else compiled)
    else:
        command = [_tools(name)[0], "-std=c++20", "-O3", "-march=native", str(SOURCES / "mpi_allreduce.cpp")]
    BUILT.mkdir(parents=True, exist_ok=True)
    half = program.with_suffix(f".{os.getpid()}")
    subprocess.run([*command, "-o", str(half)], check=True)
    half.replace(program)
    return program


def _command(name: str, program: Path, folder: Path, size: int, ranks: int, in_a_row: int) -> list[str]:
    by = {FROM_PYTHON: [sys.executable], SMALL_PAGES: [sys.executable, "-c", _IN_SMALL_PAGES]}
    arguments = [*by.get(name, []), str(program), str(folder), str(size)]
    if name == LIMIT:
        return [*arguments, str(ranks)]
    if name in (FROM_CPP, SMALL_PAGES):
        return [*arguments, str(ranks), str(in_a_row)]
    # More ranks than cores, and by root in a container: Open MPI wants to be told that this is meant.
    extra = ["--oversubscribe", "--allow-run-as-root"] if _SUFFIX[name] == "openmpi" else []
    return [_tools(name)[-1], *extra, "-n", str(ranks), *arguments, str(in_a_row)]


@dataclass(frozen=True)
class Program:
    """A program that waits for its next round."""

    process: subprocess.Popen[str]
    pipes: tuple[int, ...]

    def round(self) -> float:
        """The seconds that it took.

        Raises:
            RuntimeError: if the program has ended; its own output says why.
        """
        for pipe in self.pipes:
            os.write(pipe, b"g")
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")
        return float(line)


@contextmanager
def running(
    name: str, size: int, ranks: int, in_a_row: int = 1, core_library: Path | None = None
) -> Iterator[Program]:
    """Builds and starts the program, with `ranks` processes that have `size` bytes of float32 each.

    Args:
        in_a_row: how many sums a round is; the memory limit's is always one.
        core_library: the core to link with (`TESTED_CORE`); None: it is compiled again, as the package is.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = _build(name, core_library)
        pipes = []
        for rank in range(ranks):
            os.mkfifo(folder / f"go.{rank}")
            # For reading, too, or this would wait until the other end is open.
            pipes.append(os.open(folder / f"go.{rank}", os.O_RDWR))
        with subprocess.Popen(
            _command(name, program, folder, size, ranks, in_a_row),
            stdout=subprocess.PIPE,
            text=True,
            # Which library mpi4py takes.
            env={**os.environ, "MPI4PY_MPIABI": "openmpi"},
        ) as process:
            try:
                yield Program(process, tuple(pipes))
            finally:
                for pipe in pipes:
                    os.close(pipe)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
