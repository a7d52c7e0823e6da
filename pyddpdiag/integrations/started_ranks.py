"""Starts the ranks of a script on this machine, with the environment that torchrun gives them.

`pyddpdiag run --nproc N -- train.py` runs this file as its command. It needs no store of its own and no libuv, so it
works where torchrun does not: on Windows, torch makes torchrun's stores with libuv, which its wheel lacks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag import system
from pyddpdiag.errors import UsageError
from pyddpdiag.integrations import tasks
from pyddpdiag.integrations.early_end import NOTES
from pyddpdiag.messages.exit_codes import ended, to_pass_on
from pyddpdiag.output import say

_POLL_S: Final = 0.1
_OTHERS_S: Final = 3.0
"""For the other ranks to notice that one has failed, before they are ended."""
_KILL_S: Final = 5.0
_CODES: Final = "codes.json"
_MOST_CODES: Final = 128


@dataclass(frozen=True)
class Start:
    """Which ranks this machine starts.

    Attributes:
        nproc: ranks on this machine; the same on all.
        nnodes: machines.
        node_rank: this one, from 0.
        rendezvous: `HOST:PORT` where all ranks meet; empty: a free port of this machine.
    """

    nproc: int
    nnodes: int = 1
    node_rank: int = 0
    rendezvous: str = ""

    def check(self) -> None:
        """Whether it fits together.

        Raises:
            UsageError: it does not.
        """
        if self.nproc < 1 or self.nnodes < 1 or not 0 <= self.node_rank < self.nnodes:
            raise UsageError(
                f"--nproc {self.nproc}, --nnodes {self.nnodes} and --node-rank {self.node_rank} do not fit together.",
                hint="at least one process and one machine; machines are numbered from 0.",
            )
        if self.nnodes > 1 and not self.rendezvous:
            raise UsageError(
                "several machines need a place to meet.",
                hint="give --rendezvous HOST:PORT on all of them: the first machine, and a free port there.",
            )
        host, port = self.meeting()
        if not host or not 0 < port < 65536:
            raise UsageError(
                f"--rendezvous {self.rendezvous} is no address.", hint="give HOST:PORT, as 192.168.1.5:29500."
            )

    def meeting(self) -> tuple[str, int]:
        """Host and port; a free port where none is given."""
        if not self.rendezvous:
            return "127.0.0.1", _free_port()
        host, _, port = self.rendezvous.removeprefix("tcp://").rpartition(":")
        return host.strip("[]"), int(port) if port.isascii() and port.isdigit() else 0

    def options(self) -> dict[str, str]:
        """The options of `pyddpdiag run` that ask for it."""
        several = {
            "--nnodes": str(self.nnodes),
            "--node-rank": str(self.node_rank),
            "--rendezvous": self.rendezvous,
        }
        return {"--nproc": str(self.nproc), **(several if self.nnodes > 1 else {})}

    def command(self, script: Sequence[str]) -> list[str]:
        """The command that starts the ranks of a script."""
        host, port = self.meeting()
        numbers = [str(self.nproc), str(self.nnodes), str(self.node_rank), host, str(port)]
        return [sys.executable, "-m", __name__, *numbers, *script]


def start_of(nproc: int | None, nnodes: int, node_rank: int | None, rendezvous: str) -> Start | None:
    """What these options ask for; None: the command starts the ranks itself.

    Raises:
        UsageError: they do not fit together.
    """
    if nproc is not None:
        # Without a place to meet that comes first: nobody can meet.
        number = tasks.number_among(nnodes) if rendezvous and node_rank is None else 0
        node = number if node_rank is None else node_rank
        start = Start(nproc, nnodes, node, rendezvous)
        start.check()
        return start
    if nnodes > 1 or node_rank is not None or rendezvous:
        raise UsageError(
            "--nnodes, --node-rank and --rendezvous need --nproc.",
            hint="give --nproc, or start the ranks by torchrun.",
        )
    return None


def environment(local: int, start: Start, host: str, port: int) -> dict[str, str]:
    """The variables of one rank, by their names in torchrun; `local` is its number on this machine."""
    variables = {
        "RANK": start.node_rank * start.nproc + local,
        "LOCAL_RANK": local,
        "GROUP_RANK": start.node_rank,
        "WORLD_SIZE": start.nproc * start.nnodes,
        "LOCAL_WORLD_SIZE": start.nproc,
        "GROUP_WORLD_SIZE": start.nnodes,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
    found = {name: str(value) for name, value in variables.items()}
    if start.nproc > 1 and "OMP_NUM_THREADS" not in os.environ:
        # As torchrun does: by default each rank would take all cores.
        found["OMP_NUM_THREADS"] = "1"
    if not system.STORE_HAS_LIBUV:
        found["USE_LIBUV"] = "0"
    return found


def run_ranks(start: Start, host: str, port: int, script: Sequence[str]) -> int:
    """Starts the ranks and waits for them. When one fails, the others get a moment, and are then ended.

    Args:
        start: which ranks.
        host: where they meet.
        port: where they meet.
        script: a Python file, or `-m` and a module, and its arguments.

    Returns:
        the exit code of the first rank that failed, as a shell gives it; 0: none did.
    """
    ranks = [_started(environment(local, start, host, port), script) for local in range(start.nproc)]
    first = start.node_rank * start.nproc
    try:
        failed = _until_one_fails(ranks)
        if failed is None:
            return 0
        code = ranks[failed].returncode
        say(f"pyddpdiag run: rank {first + failed} {ended(code)}.", sys.stderr)
        _wait(ranks, _OTHERS_S)
        _note(
            {str(first + local): rank.poll() for local, rank in enumerate(ranks[:_MOST_CODES]) if rank.poll()}
        )
        return code if code >= 0 else 128 - code
    finally:
        _end(ranks)


def _note(codes: Mapping[str, int | None]) -> None:
    """For `pyddpdiag run`, whose verdict may know nothing else of a rank that was killed."""
    with suppress(OSError, KeyError):
        Path(os.environ[NOTES], _CODES).write_text(json.dumps(codes), encoding="utf-8")


def noted_codes(notes: Path) -> dict[str, int]:
    """The exit codes that a launcher left among the notes: those of ranks that failed by themselves."""
    with suppress(OSError, ValueError):
        return dict(json.loads((notes / _CODES).read_text(encoding="utf-8")))
    return {}


def _started(variables: Mapping[str, str], script: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *script], env={**os.environ, **variables})


def _until_one_fails(ranks: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """The first rank that failed; None: all ended well."""
    while True:
        codes = [rank.poll() for rank in ranks]
        for number, code in enumerate(codes):
            if code:
                return number
        if all(code == 0 for code in codes):
            return None
        time.sleep(_POLL_S)


def _wait(ranks: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    until = time.monotonic() + seconds
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < until:
        time.sleep(_POLL_S)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        with suppress(OSError):
            if rank.poll() is None:
                rank.terminate()
    _wait(ranks, _KILL_S)
    for rank in ranks:
        with suppress(OSError):
            if rank.poll() is None:
                rank.kill()
        rank.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(arguments: Sequence[str]) -> int:
    """The command of `Start.command`, without its Python."""
    nproc, nnodes, node_rank = (int(text) for text in arguments[:3])
    try:
        start = Start(nproc, nnodes, node_rank)
        return to_pass_on(run_ranks(start, arguments[3], int(arguments[4]), arguments[5:]))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
