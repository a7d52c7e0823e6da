"""The rank processes of one run, and the lines that they exchange with the runner."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bed.server import Forked, Server
from bed.surroundings import Surroundings

Message = tuple[int, dict[str, Any] | None]
"""A rank and what it said; None: its output has ended."""


class Ranks:
    """Starts the ranks of a run and passes messages; a context manager that leaves no process behind.

    Args:
        spec: the file of orders.
        count: of ranks.
        where: they live.
        folder: for their errors.
        part: what they run: `rank` or `script`.
        server: forks them; None: each is started on its own.
    """

    def __init__(
        self,
        spec: Path,
        count: int,
        where: Surroundings,
        folder: Path,
        part: str = "rank",
        server: Server | None = None,
    ) -> None:
        env = {**environment(), "GLOO_SOCKET_IFNAME": where.interface}
        self._queue: queue.Queue[Message] = queue.Queue()
        self.processes: list[subprocess.Popen[str] | Forked] = []
        self._waiting: dict[int, dict[str, Any]] = {}
        self.errors = [folder / f"rank_{rank}.err" for rank in range(count)]
        try:
            for rank in range(count):
                with self.errors[rank].open("w", encoding="utf-8") as errors:
                    process: subprocess.Popen[str] | Forked
                    if server is not None:
                        order = {
                            "spec": str(spec),
                            "rank": rank,
                            "part": part,
                            "folder": str(folder),
                            "env": {"GLOO_SOCKET_IFNAME": where.interface},
                            "host": where.host(rank),
                        }
                        process = Forked(server, order, errors.fileno())
                    else:
                        module = {"rank": "bed.rank", "script": "bed.scripts"}[part]
                        command = [sys.executable, "-m", module, str(spec), str(rank)]
                        process = subprocess.Popen(
                            where.command(rank, command),
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            stderr=errors,
                            env=env,
                            cwd=folder,
                            text=True,
                        )
                self.processes.append(process)
                where.started(rank, process.pid)
                threading.Thread(target=self._read, args=(rank, process), daemon=True).start()
        except BaseException:
            self.kill()
            raise

    def _read(self, rank: int, process: subprocess.Popen[str] | Forked) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._queue.put((rank, json.loads(line)))
        self._queue.put((rank, None))

    def follow(
        self,
        answer: Callable[[str, list[dict[str, Any]]], str | None],
        hear: Callable[[int, str, dict[str, Any]], bool],
        timeout_s: float,
    ) -> bool:
        """Passes messages until all ranks have ended, or `hear` says that it has heard enough.

        Args:
            answer: called when all ranks have asked the same; they go on when it returns, and get the word that it
                returns.
            hear: called with what a rank tells, `ended` when its output ends; True stops.
            timeout_s: for the whole run.

        Returns:
            Whether `hear` stopped it.

        Raises:
            TimeoutError: the run takes longer.
        """
        until, ended = time.monotonic() + timeout_s, 0
        while ended < len(self.processes):
            try:
                rank, message = self._queue.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"the run takes longer than {timeout_s:g} s") from None
            if message is None:
                ended += 1
                if hear(rank, "ended", {}):
                    return True
            elif "tell" in message:
                if hear(rank, message["tell"], message):
                    return True
            else:
                self._waiting[rank] = message
                if len(self._waiting) == len(self.processes):
                    asked = [self._waiting[r] for r in range(len(self.processes))]
                    self._waiting = {}
                    word = answer(asked[0]["ask"], asked) or "go"
                    for process in self.processes:
                        assert process.stdin is not None
                        process.stdin.write(f"{word}\n")
                        process.stdin.flush()
        return False

    def delays(self) -> list[tuple[float, float] | None]:
        """Of each rank's main thread: seconds that it ran, and that it waited for a core; None: not available."""
        return [run_delay(process.pid) for process in self.processes]

    def kill(self) -> None:
        """Ends all ranks at once."""
        for process in self.processes:
            try:
                for child in [
                    *psutil.Process(process.pid).children(recursive=True),
                    psutil.Process(process.pid),
                ]:
                    child.kill()
            except psutil.NoSuchProcess:
                pass
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:
                        pass

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def environment() -> dict[str, str]:
    """Of the ranks: as here, without other people's numbers of threads.

    Only this folder is on the path: a source tree without the native module would hide the installed package.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    return {**env, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}


def run_delay(pid: int) -> tuple[float, float] | None:
    """Seconds that a process's main thread ran and waited for a core, from Linux's schedstat."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return int(ran) / 1e9, int(waited) / 1e9
