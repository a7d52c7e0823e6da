"""Hosts of their own for the ranks: network namespaces around one or two switches, with shaped links.

Rates are shaped by the kernel (tbf at both ends). Delay and loss need no more of it than TAP devices: the faulty host
hangs on the switch by a relay of ours (`bed.relay`).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from bed.truth import Fault

_TAKE = """
import socket, sys
server = socket.create_server((sys.argv[1], 29519))
client = server.accept()[0]
while client.recv(65536):
    pass
"""
_GIVE = """
import socket, sys, time
for _ in range(100):
    try:
        client = socket.create_connection((sys.argv[1], 29519), timeout=5)
        break
    except OSError:
        time.sleep(0.05)
while True:
    client.sendall(bytes(65536))
"""

MBIT = 200.0
_MTU = 8000
_runs = itertools.count()


class Hosts:
    """`count` hosts; `eth<n>` of each is `10.78.<n>.<rank + 1>` and hangs on switch n. Switch 1 is made on request."""

    interface = "eth0"

    def __init__(self, count: int, fault: Fault) -> None:
        self._fault = fault
        # Where several ranks share a host: the host of each.
        self._place: list[int] = fault.get("hosts") or list(range(count))
        count = max(self._place) + 1
        self._traffic: list[subprocess.Popen[str]] = []
        self._tag = f"{os.getpid()}-{next(_runs)}"
        self._switch = f"bed-s-{self._tag}"
        self._hosts = [f"bed-{rank}-{self._tag}" for rank in range(count)]
        self._relay: subprocess.Popen[str] | None = None
        self._flapping: threading.Thread | None = None
        self._steady = threading.Event()
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        for name in (self._switch, *self._hosts):
            _do("ip", "netns", "add", name)
            _do("ip", "-n", name, "link", "set", "lo", "up")
        relayed = self._fault["rank"] if self._fault["name"] in ("delay", "loss") else None
        for network in range(2 if "interfaces" in self._fault else 1):
            _do("ip", "-n", self._switch, "link", "add", f"br{network}", "type", "bridge")
            _do("ip", "-n", self._switch, "link", "set", f"br{network}", "mtu", str(_MTU), "up")
            for rank in range(len(self._hosts)):
                self._connect(rank, network, relay=rank == relayed)
                self._shape(rank, MBIT, network=network)

    def _connect(self, rank: int, network: int, *, relay: bool) -> None:
        host, name, port = self._hosts[rank], f"eth{network}", _port(rank, network)
        if relay:
            self._connect_by_relay(host, port)
        else:
            _do(
                *("ip", "link", "add", name, "netns", host),
                *("type", "veth", "peer", "name", port, "netns", self._switch),
            )
        _do("ip", "-n", host, "address", "add", f"10.78.{network}.{rank + 1}/24", "dev", name)
        _do("ip", "-n", host, "link", "set", name, "mtu", str(_MTU), "up")
        bridge = f"br{network}"
        _do("ip", "-n", self._switch, "link", "set", port, "master", bridge, "mtu", str(_MTU), "up")

    def _connect_by_relay(self, host: str, port: str) -> None:
        first, second = f"beda{os.getpid()}", f"bedb{os.getpid()}"
        self._relay = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("relay.py")), first, second],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._relay.stdout is not None
        if self._relay.stdout.readline() != "ready\n":
            raise OSError("no relay: TAP devices cannot be made here")
        # A device that is open moves to another namespace with its file.
        _do("ip", "link", "set", first, "netns", host, "name", "eth0")
        _do("ip", "link", "set", second, "netns", self._switch, "name", port)

    def _shape(self, rank: int, out: float, into: float | None = None, *, network: int = 0) -> None:
        """The rates of a host's link in Mbit/s; `into` it is as out of it unless given."""
        for space, device, mbit in (
            (self._hosts[rank], f"eth{network}", out),
            (self._switch, _port(rank, network), out if into is None else into),
        ):
            # A small bucket: a large one would let small transfers through at full speed.
            shape = ("tbf", "rate", f"{mbit:g}mbit", "burst", "40kb", "latency", "60ms")
            _do("tc", "-n", space, "qdisc", "replace", "dev", device, "root", *shape)

    def command(self, rank: int, command: Sequence[str]) -> list[str]:
        """In the rank's own host."""
        return ["ip", "netns", "exec", self.host(rank), *command]

    def host(self, rank: int) -> str:
        """The namespace of the rank's host."""
        return self._hosts[self._place[rank]]

    def started(self, rank: int, pid: int) -> None:
        """Nothing to do."""

    def switch(self, on: bool) -> None:
        """Lets the link of the fault's rank be slow, delayed or lossy, or not."""
        fault = self._fault
        slow = MBIT / fault.get("divide", 1.0)
        if fault["name"] == "rate":
            self._shape(int(fault.get("host", fault["rank"])), slow if on else MBIT)
        elif fault["name"] == "rate out":
            self._shape(fault["rank"], slow if on else MBIT, MBIT)
        elif fault["name"] == "wrong":
            # The job is on the slow network while the fault acts; it stays slow.
            for rank in range(len(self._hosts)):
                self._shape(rank, slow, network=1)
        elif fault["name"] == "flap":
            self._flap(on)
        elif fault["name"] == "cut":
            _do("ip", "-n", self._switch, "link", "set", _port(fault["rank"], 0), "down" if on else "up")
        elif fault["name"] == "traffic":
            self._send(on)
        elif self._relay is not None:
            assert self._relay.stdin is not None
            ms, percent = (fault.get("ms", 0.0), fault.get("percent", 0.0)) if on else (0.0, 0.0)
            self._relay.stdin.write(f"{ms} {percent}\n")
            self._relay.stdin.flush()

    def _send(self, on: bool) -> None:
        """Lets somebody else send from the faulty host as fast as its link goes, to another one; or not."""
        for process in self._traffic:
            process.kill()
            process.wait()
        self._traffic = []
        if on:
            source = self._fault["rank"]
            sink = (source + 1) % len(self._hosts)
            address = f"10.78.0.{sink + 1}"
            for host, code in ((sink, _TAKE), (source, _GIVE)):
                command = ["ip", "netns", "exec", self._hosts[host], sys.executable, "-c", code, address]
                self._traffic.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True))

    def _flap(self, on: bool) -> None:
        """Takes the faulty host's link down for a while again and again, or leaves it up."""
        self._steady.set()
        if self._flapping is not None:
            self._flapping.join()
            self._flapping = None
        if on:
            self._steady.clear()
            self._flapping = threading.Thread(target=self._go_down_and_up, daemon=True)
            self._flapping.start()

    def _go_down_and_up(self) -> None:
        port, down_s = _port(self._fault["rank"], 0), float(self._fault["down_s"])
        while not self._steady.wait(float(self._fault["each_s"]) - down_s):
            _do("ip", "-n", self._switch, "link", "set", port, "down")
            self._steady.wait(down_s)
            _do("ip", "-n", self._switch, "link", "set", port, "up")

    def close(self) -> None:
        """Takes all of it away."""
        self._flap(False)
        self._send(False)
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            for stream in (self._relay.stdin, self._relay.stdout):
                if stream is not None:
                    stream.close()
        for name in (self._switch, *self._hosts):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, timeout=20)


def why_not() -> str:
    """Why such hosts cannot be made here, "" if they can."""
    from support.links import why_not as no_links

    refused = no_links()
    if not refused and not Path("/dev/net/tun").exists():
        refused = "there is no /dev/net/tun"
    return refused


def _port(rank: int, network: int) -> str:
    return f"port{rank}-{network}"


def _do(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    except subprocess.CalledProcessError as error:
        raise OSError(f"{' '.join(command)}: {error.stderr.strip()}") from error
