"""Programs that sums in shared memory are compared with: MPI's all-reduce, and what memory itself allows.

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
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).resolve().parents[1] / "programs"
CORE = SOURCES.parents[1] / "csrc"
OPTIMISED = ("-O3", "-march=native")
OPEN_MPI, MPICH, LIMIT = "Open MPI", "MPICH", "memory limit"
# As Debian names them where both are installed.
_SUFFIX = {OPEN_MPI: "openmpi", MPICH: "mpich"}
_PACKAGES = {OPEN_MPI: "openmpi-bin libopenmpi-dev", MPICH: "mpich libmpich-dev"}


def why_not(name: str) -> str:
    """Why the program cannot be built and run here; empty if it can, or if it is none of these."""
    if name not in (OPEN_MPI, MPICH, LIMIT):
        return ""
    if sys.platform != "linux":
        return f"{name}: the program is for Linux"
    absent = [tool for tool in _tools(name) if shutil.which(tool) is None]
    if not absent:
        return ""
    packages = _PACKAGES.get(name, "g++")
    return f"{name}: there is no {absent[0]} here (Debian: apt-get install {packages})"


def _tools(name: str) -> list[str]:
    if name == LIMIT:
        return ["c++"]
    return [f"mpicxx.{_SUFFIX[name]}", f"mpirun.{_SUFFIX[name]}"]


def _build(name: str, folder: Path) -> Path:
    """Compiles the program into `folder`."""
    program = folder / "program"
    if name == LIMIT:
        command = ["c++", "-std=c++20", *OPTIMISED, f"-I{CORE}", str(SOURCES / "memory_limit.cpp")]
        command += map(str, [CORE / "core" / "shared_sum.cpp", *sorted((CORE / "core").glob("fused_*.cpp"))])
    else:
        command = [_tools(name)[0], *OPTIMISED, str(SOURCES / "mpi_allreduce.cpp")]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def _command(name: str, program: Path, folder: Path, size: int, ranks: int, in_a_row: int) -> list[str]:
    arguments = [str(program), str(folder), str(size)]
    if name == LIMIT:
        return [*arguments, str(ranks)]
    # More ranks than cores, and by root in a container: Open MPI wants to be told that this is meant.
    extra = ["--oversubscribe", "--allow-run-as-root"] if name == OPEN_MPI else []
    return [_tools(name)[1], *extra, "-n", str(ranks), *arguments, str(in_a_row)]


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
def running(name: str, size: int, ranks: int, in_a_row: int = 1) -> Iterator[Program]:
    """Builds and starts the program, with `ranks` processes that have `size` bytes of float32 each.

    Args:
        in_a_row: how many sums a round of MPI is.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = _build(name, folder)
        pipes = []
        for rank in range(ranks):
            os.mkfifo(folder / f"go.{rank}")
            # For reading, too, or this would wait until the other end is open.
            pipes.append(os.open(folder / f"go.{rank}", os.O_RDWR))
        with subprocess.Popen(
            _command(name, program, folder, size, ranks, in_a_row), stdout=subprocess.PIPE, text=True
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
