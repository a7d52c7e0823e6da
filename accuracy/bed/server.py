"""Starts ranks by fork from a process that has loaded torch already, so that a run does not wait for imports (Linux).

A rank that comes from here is a process of its own in all that is judged: its start in the system's books is that of
the fork, so that the account of its life begins there, and torch has no threads yet. `python -m bed.server FD` is the
process; `Server` leads it over a socket, one line of JSON each way.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PARTS = {"rank": "bed.rank", "script": "bed.scripts"}
"""What a rank runs: modules with `main(spec, rank)`."""

_NEW_NET, _NEW_MOUNTS = 0x40000000, 0x00020000
_SLAVES_BELOW = 0x80000 | 0x4000
_DETACH = 2


class Server:
    """The process that forks ranks; ends with this one."""

    def __init__(self, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # The pool of NumPy's library would be a thread that a fork loses.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bed.server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**env, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            # What ends the bed from outside must leave it time to take its ranks away.
            start_new_session=True,
        )
        theirs.close()
        self._socket = ours
        self._lines = ours.makefile("r", encoding="utf-8")
        atexit.register(self.close)
        self._lines.readline()  # loaded

    @property
    def runs(self) -> bool:
        """Whether it has not ended by itself, as for lack of memory."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._lines.close()
        self._process.wait()

    def ask(self, order: Mapping[str, Any], files: tuple[int, ...] = ()) -> dict[str, Any]:
        """Sends an order with open files; returns what comes back."""
        line = json.dumps(order).encode() + b"\n"
        if files:
            socket.send_fds(self._socket, [line], list(files))
        else:
            self._socket.sendall(line)
        answer = self._lines.readline()
        if not answer:
            raise OSError("the server of ranks has ended")
        found: dict[str, Any] = json.loads(answer)
        return found


class Forked:
    """A rank that the server started; the part of `subprocess.Popen` that the bed uses."""

    def __init__(self, server: Server, order: Mapping[str, Any], errors: int) -> None:
        self._server = server
        (input_end, to_it), (from_it, output_end) = os.pipe(), os.pipe()
        try:
            self.pid = int(server.ask(order, (input_end, output_end, errors))["pid"])
        finally:
            os.close(input_end)
            os.close(output_end)
        self.stdin = os.fdopen(to_it, "w", encoding="utf-8")
        self.stdout = os.fdopen(from_it, encoding="utf-8")
        self._code: int | None = None

    def wait(self) -> int:
        """Waits for its end; its exit status, as of `Popen.wait`."""
        while self._code is None:
            self._code = self._server.ask({"wait": self.pid})["code"]
            if self._code is None:
                time.sleep(0.02)
        return self._code


def main(file: int) -> None:
    """Loads all that ranks need, and starts one at each order."""
    for name in (*_PARTS.values(), "torch.distributed.algorithms.join", "pyddpdiag.integrations.watched"):
        importlib.import_module(name)
    link = socket.socket(fileno=file)
    link.sendall(b"{}\n")
    while True:
        line, files, _, _ = socket.recv_fds(link, 65536, 3)
        if not line:
            return
        order = json.loads(line)
        if "wait" in order:
            pid, status = os.waitpid(order["wait"], os.WNOHANG)
            answer = {"code": os.waitstatus_to_exitcode(status) if pid else None}
        else:
            pid = os.fork()
            if pid == 0:
                link.close()
                _be_rank(order, files)
            answer = {"pid": pid}
            for each in files:
                os.close(each)
        link.sendall(json.dumps(answer).encode() + b"\n")


def _be_rank(order: Mapping[str, Any], files: list[int]) -> None:
    code = 1
    try:
        for target, each in enumerate(files):
            os.dup2(each, target)
            os.close(each)
        os.setsid()
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        os.chdir(order["folder"])
        os.environ.update(order["env"])
        if order["host"]:
            _enter(order["host"])
        spec = json.loads(Path(order["spec"]).read_text(encoding="utf-8"))
        importlib.import_module(_PARTS[order["part"]]).main(spec, order["rank"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _end(code: int) -> None:
    """As an interpreter ends: what others have registered for it runs."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _enter(host: str) -> None:
    """Goes into a network namespace as `ip netns exec` does: with the /sys of that one."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *values: Any) -> None:
        if getattr(libc, name)(*values):
            error = ctypes.get_errno()
            raise OSError(error, f"{name}: {os.strerror(error)}")

    with Path(f"/var/run/netns/{host}").open("rb") as space:
        call("setns", space.fileno(), _NEW_NET)
    call("unshare", _NEW_MOUNTS)
    call("mount", b"", b"/", b"none", ctypes.c_ulong(_SLAVES_BELOW), None)
    call("umount2", b"/sys", _DETACH)
    call("mount", host.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
