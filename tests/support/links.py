"""Two hosts on one machine, as network namespaces, with two links of chosen rates between them.

For tests and benchmarks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NAMES = ("one0", "two0")
"""The hosts' interfaces; the first is on the first link."""


def why_not() -> str:
    """Why links cannot be made here, "" if they can."""
    if not hasattr(os, "geteuid"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the tool '{tool}' is not here"
    name = f"ddpdiag-try-{os.getpid()}"
    try:
        _do("ip", "netns", "add", name)
        _do("ip", "-n", name, "link", "set", "lo", "up")
        _do("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "tbf", *_shape(100))
    except subprocess.CalledProcessError as error:
        return f"this kernel or container refuses: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, timeout=10)
    return ""


@contextmanager
def two_hosts(mbit: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """The names of two namespaces; host i has 10.77.<link>.<i+1> on each link. Gone after the block."""
    hosts = (f"ddpdiag-a-{os.getpid()}", f"ddpdiag-b-{os.getpid()}")
    try:
        for host in hosts:
            _do("ip", "netns", "add", host)
            _do("ip", "-n", host, "link", "set", "lo", "up")
        for link, (name, rate) in enumerate(zip(NAMES, mbit, strict=True)):
            _do(
                *("ip", "link", "add", name, "netns", hosts[0]),
                *("type", "veth", "peer", "name", name, "netns", hosts[1]),
            )
            for place, host in enumerate(hosts):
                _do("ip", "-n", host, "address", "add", f"10.77.{link}.{place + 1}/24", "dev", name)
                _do("ip", "-n", host, "link", "set", name, "up")
                _do("tc", "-n", host, "qdisc", "add", "dev", name, "root", "tbf", *_shape(rate))
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False, timeout=10)


def on_hosts(
    hosts: Sequence[str], commands: Sequence[Sequence[str]], folder: Path, timeout_s: float
) -> list[tuple[int, str, str]]:
    """Runs one command on each host at the same time, in `folder`; exit code, output and errors of each.

    Raises subprocess.TimeoutExpired if they take longer all together. Nothing is left running.
    """
    # A user's choice of an interface is none of these hosts'.
    env = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    processes: list[subprocess.Popen[str]] = []
    try:
        for host, command in zip(hosts, commands, strict=True):
            processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", host, *command],
                    cwd=folder,
                    env=env,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        limit = time.monotonic() + timeout_s
        ends = [p.communicate(timeout=max(0.1, limit - time.monotonic())) for p in processes]
        return [(p.returncode, out, err) for p, (out, err) in zip(processes, ends, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _shape(mbit: int) -> tuple[str, ...]:
    # A bucket of a few milliseconds' worth: small against a round, large against a packet.
    return ("rate", f"{mbit}mbit", "burst", f"{max(64, mbit)}kb", "latency", "100ms")


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
