"""Machines on one machine: each with its network, processes, clock, name and files of its own. Takes root on Linux.

Each sees its own disk as its working folder, and the others' disks not at all; the test sees all of them, also when a
machine is gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support import links
from support.commands import ran

# $0: its name. $1: its disk. $2: the folder of all disks. $3: its working folder.
_BOOT: Final = (
    'hostname "$0" && mount --bind "$1" "$3" && mount -t tmpfs none "$2" && cd "$3" && shift 3 && exec "$@"'
)
_CLOCK_S: Final = 1000


@dataclass
class Machines:
    """Running machines.

    Attributes:
        hosts: their network namespaces.
        disks: of each, as the test sees them.
        work: what each machine calls its disk.
        booted: what runs on each machine, by its number.
    """

    hosts: Sequence[str]
    disks: Sequence[Path]
    work: Path
    booted: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def first_address(self) -> str:
        """Of the first machine, where the ranks meet."""
        return "10.77.0.1"

    def boot(self, number: int, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Starts a machine that runs a command and nothing else."""
        space = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        # None shares the test's clock or another machine's.
        space += ["--time", "--monotonic", str(_CLOCK_S * (number + 1))]
        path = os.pathsep.join([str(Path(__file__).parents[1]), *(path for path in sys.path if path)])
        self.booted[number] = subprocess.Popen(
            [
                *("ip", "netns", "exec", self.hosts[number], *space, "sh", "-c", _BOOT),
                *(f"machine{number}", str(self.disks[number]), str(self.disks[0].parent), str(self.work)),
                *command,
            ],
            env={
                **os.environ,
                "PYTHONPATH": path,
                "GLOO_SOCKET_IFNAME": links.NAMES[0],
                "OMP_NUM_THREADS": "1",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ended(self, number: int, timeout_s: float) -> tuple[int, str]:
        """Exit code and output of the command on a machine."""
        out, _ = self.booted[number].communicate(timeout=timeout_s)
        return self.booted[number].returncode, out

    def power_off(self, number: int) -> None:
        """Without a word to anybody: first its cable, then all of its processes at once."""
        links.cut(self.hosts[number])
        self.booted[number].kill()
        self.booted[number].wait()


def why_not() -> str:
    """Why there can be no machines here, "" if there can."""
    why = links.why_not()
    if why:
        return why
    tried = ran(
        *("unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--time"),
        *("--monotonic", "1", "true"),
        timeout_s=30,
    )
    return f"this kernel or container refuses: {tried.stderr.strip()}" if tried.returncode else ""


@contextmanager
def machines(folder: Path, count: int) -> Iterator[Machines]:
    """So many machines on one switch, not booted yet; all is gone after the block but their disks."""
    disks = [folder / "disks" / f"{number}" for number in range(count)]
    for disk in disks:
        disk.mkdir(parents=True)
    work = folder / "work"
    work.mkdir()
    with ExitStack() as stack:
        found = Machines(stack.enter_context(links.switched_hosts(count)), disks, work)
        stack.callback(_end, found)
        yield found


def _end(found: Machines) -> None:
    for process in found.booted.values():
        process.kill()
        process.communicate()
