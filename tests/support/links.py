"""Hosts on one machine, as network namespaces: two with two links of chosen rates, or several on a switch.

For tests and benchmarks.
"""

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

NAMES = ("one0", "two0")
"""The hosts' interfaces; the first is on the first link."""

_made = itertools.count()
# In a namespace of this name, `ip netns exec` shows the files of a folder here as those of /etc.
_CONFIGURATION = Path("/etc/netns")


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
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, timeout=60)
    return ""


@contextmanager
def two_hosts(mbit: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """The names of two namespaces; host i has 10.77.<link>.<i+1> on each link. Gone after the block."""
    with _namespaces(2) as (first, second):
        hosts = (first, second)
        for link, (name, rate) in enumerate(zip(NAMES, mbit, strict=True)):
            _do(
                *("ip", "link", "add", name, "netns", hosts[0]),
                *("type", "veth", "peer", "name", name, "netns", hosts[1]),
            )
            for place, host in enumerate(hosts):
                _do("ip", "-n", host, "address", "add", f"10.77.{link}.{place + 1}/24", "dev", name)
                _do("ip", "-n", host, "link", "set", name, "up")
                _do("tc", "-n", host, "qdisc", "add", "dev", name, "root", "tbf", *_shape(rate))
        _wait_until_up(hosts, NAMES)
        yield hosts


@contextmanager
def switched_hosts(count: int, mbit: Sequence[int | None] = (None,)) -> Iterator[tuple[str, ...]]:
    """The names of `count` namespaces on a switch for each of `mbit`; host i has 10.77.<switch>.<i+1> on each.

    What a host sends to a switch is held to its rate, if there is one.
    """
    names = NAMES[: len(mbit)]
    with _namespaces(count + len(mbit)) as made:
        hosts = made[len(mbit) :]
        for link, (switch, name, rate) in enumerate(zip(made, names, mbit, strict=False)):
            _do("ip", "-n", switch, "link", "add", "switch0", "type", "bridge")
            _do("ip", "-n", switch, "link", "set", "switch0", "up")
            for place, host in enumerate(hosts):
                port = f"port{place}"
                _do(
                    *("ip", "link", "add", port, "netns", switch),
                    *("type", "veth", "peer", "name", name, "netns", host),
                )
                _do("ip", "-n", switch, "link", "set", port, "master", "switch0", "up")
                _do("ip", "-n", host, "address", "add", f"10.77.{link}.{place + 1}/24", "dev", name)
                _do("ip", "-n", host, "link", "set", name, "up")
                if rate is not None:
                    _do("tc", "-n", host, "qdisc", "add", "dev", name, "root", "tbf", *_shape(rate))
        _wait_until_up(hosts, names)
        yield tuple(hosts)


@contextmanager
def hosts_file(host: str, text: str) -> Iterator[None]:
    """What /etc/hosts holds for the programs on a host that are started within the block."""
    folder = _CONFIGURATION / host
    made = not _CONFIGURATION.exists()
    folder.mkdir(parents=True)
    path = folder / "hosts"
    try:
        path.write_text(text, encoding="ascii")
        yield
    finally:
        path.unlink(missing_ok=True)
        folder.rmdir()
        if made:
            _CONFIGURATION.rmdir()


@contextmanager
def _namespaces(count: int) -> Iterator[list[str]]:
    """Their names, never the same twice: a namespace goes away a while after its name does."""
    number = next(_made)
    hosts = [f"ddpdiag-{place}-{os.getpid()}-{number}" for place in range(count)]
    with ExitStack() as stack:
        for host in hosts:
            _do("ip", "netns", "add", host)
            stack.callback(_delete, host)
            _do("ip", "-n", host, "link", "set", "lo", "up")
        yield hosts


def _delete(host: str) -> None:
    subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False, timeout=60)


def _wait_until_up(hosts: Sequence[str], names: Sequence[str]) -> None:
    """The kernel tells of a new link's carrier up to a second late; until then it counts as down."""
    until = time.monotonic() + 20.0
    for host in hosts:
        for name in names:
            while time.monotonic() < until:
                shown = ["ip", "-n", host, "-o", "link", "show", "dev", name]
                done = subprocess.run(shown, check=True, capture_output=True, text=True, timeout=60)
                if "state UP" in done.stdout:
                    break
                time.sleep(0.05)


def inside(host: str, *words: str) -> list[str]:
    """A command, as it runs on a host."""
    return ["ip", "netns", "exec", host, *words]


def limit(host: str, name: str, mbit: int, burst_kb: int | None = None) -> None:
    """Gives what a host sends over one of its interfaces another rate; so much passes at full speed after a rest."""
    _do("tc", "-n", host, "qdisc", "replace", "dev", name, "root", "tbf", *_shape(mbit, burst_kb))


def cut(host: str) -> None:
    """Pulls a host's first cable: nobody hears that its connections end."""
    _do("ip", "-n", host, "link", "set", NAMES[0], "down")


def why_no_loss() -> str:
    """Why a host cannot be made to lose what it receives, "" if it can."""
    if shutil.which("iptables") is None:
        return "the tool 'iptables' is not here"
    name = f"ddpdiag-lose-{os.getpid()}"
    try:
        _do("ip", "netns", "add", name)
        lose(name, 0.01)
    except subprocess.CalledProcessError as error:
        return f"this kernel or container refuses: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, timeout=60)
    return ""


def lose(host: str, part: float) -> None:
    """Has a host drop this part of the TCP packets that it receives, at random."""
    rule = ("-A", "INPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", str(part))
    _do(*inside(host, "iptables", *rule, "-j", "DROP"))


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
                    inside(host, *command),
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


def _shape(mbit: int, burst_kb: int | None = None) -> tuple[str, ...]:
    # A bucket of a few milliseconds' worth: small against a round, large against a packet.
    return ("rate", f"{mbit}mbit", "burst", f"{burst_kb or max(64, mbit)}kb", "latency", "100ms")


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
