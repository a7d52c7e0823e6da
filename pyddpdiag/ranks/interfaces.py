"""Network interfaces and addresses of this machine; which of them Gloo takes, by name from GLOO_SOCKET_IFNAME."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from pyddpdiag.errors import UsageError
from pyddpdiag.ranks.tcp import family, resolve

VARIABLE = "GLOO_SOCKET_IFNAME"


def available() -> dict[str, list[str]]:
    """The IP addresses of every interface of this machine that has one, by its name."""
    found: dict[str, list[str]] = {}
    for name, addresses in psutil.net_if_addrs().items():
        texts = [a.address for a in addresses if a.family in (socket.AF_INET, socket.AF_INET6)]
        if texts:
            found[name] = texts
    return found


def parse(text: str) -> tuple[str, ...]:
    """The names in `NAME[,NAME]`.

    Raises:
        UsageError: a name is empty.
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UsageError(
            f"'{text}' holds an empty interface name.", hint="write --interface eth0 or eth0,eth1."
        )
    return names


def check(names: tuple[str, ...], source: str) -> None:
    """Checks that Gloo can use each interface; `source` says where the names came from.

    Raises:
        UsageError: an interface does not exist, or has no IP address.
    """
    known = available()
    for name in names:
        if name not in known:
            down = name in psutil.net_if_addrs()
            listed = ", ".join(f"{n} ({', '.join(a)})" for n, a in sorted(known.items()))
            raise UsageError(
                f"The interface '{name}' ({source}) {'has no IP address' if down else 'does not exist'}.",
                hint=f"choose among: {listed or 'none has an IP address'}.",
            )


def loopback() -> str | None:
    """The name of the loopback interface, or None if there is none."""
    for name, addresses in available().items():
        if any(map(is_loopback, addresses)):
            return name
    return None


def choose(
    names: tuple[str, ...], *, local: bool, environ: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """Decides the value of GLOO_SOCKET_IFNAME.

    Args:
        names: what the user asked for by --interface; may be empty.
        local: all ranks run on this machine, so the loopback interface will do.
        environ: where the variable may already be set.

    Returns:
        (value, note): the value, "" to leave the variable unset; a sentence for the user, "" if there is
        nothing to say.

    Raises:
        UsageError: Gloo cannot use an interface that was asked for.
    """
    if names:
        check(names, "from --interface")
        return ",".join(names), ""
    inherited = environ.get(VARIABLE, "")
    if inherited:
        check(parse(inherited), f"from {VARIABLE}")
        return inherited, ""
    name = loopback() if local else None
    if name is None:
        return "", ""
    return (
        name,
        f"Gloo uses the loopback interface {name}, as all ranks are here (--interface changes it).",
    )


_KINDS = (
    (
        "docker",
        re.compile(r"docker|^br-[0-9a-f]{12}$|^veth|podman|cni|flannel|cali|virbr|kube", re.IGNORECASE),
    ),
    (
        "VPN",
        re.compile(
            r"^tun|^tap|^wg|^ppp|vpn|tailscale|zerotier|^zt|wireguard|^utun|fortinet|anyconnect",
            re.IGNORECASE,
        ),
    ),
    ("WSL", re.compile(r"wsl|vEthernet", re.IGNORECASE)),
    ("wireless", re.compile(r"^wl|wi-?fi|wlan", re.IGNORECASE)),
)


@dataclass(frozen=True)
class Interface:
    """A network interface with an IP address.

    Attributes:
        name: as GLOO_SOCKET_IFNAME takes it.
        addresses: IPv4 before IPv6, without scopes.
        mtu: in bytes; 0 if unknown.
        speed_mbit: 0 if unknown.
        up: whether it is.
        kind: loopback, docker, VPN, WSL, wireless or network.
    """

    name: str
    addresses: tuple[str, ...]
    mtu: int
    speed_mbit: int
    up: bool
    kind: str

    @property
    def routable(self) -> tuple[str, ...]:
        """Its addresses that mean something without its name; link-local IPv6 does not."""
        return tuple(one for one in self.addresses if ":" not in one or not is_link_local(one))

    def __str__(self) -> str:
        speed = f", {self.speed_mbit} Mbit/s" if self.speed_mbit else ""
        mtu = f", MTU {self.mtu}" if self.mtu else ""
        return (
            f"{self.name}: {', '.join(self.addresses)}{mtu}{speed}, {self.kind}{'' if self.up else ', DOWN'}"
        )


@dataclass(frozen=True)
class Choice:
    """What Gloo will listen on. `names`: of interfaces, () if none has the address; `why`: a sentence's end."""

    names: tuple[str, ...]
    address: str
    why: str

    @property
    def loopback(self) -> bool:
        """Whether other machines cannot reach it."""
        return is_loopback(self.address)


def is_loopback(address: str) -> bool:
    """Whether it is an address of the machine itself only."""
    try:
        return ipaddress.ip_address(address.split("%", 1)[0]).is_loopback
    except ValueError:
        return False


def is_link_local(address: str) -> bool:
    """Whether it only has a meaning together with an interface."""
    try:
        return ipaddress.ip_address(address.split("%", 1)[0]).is_link_local
    except ValueError:
        return False


def found() -> list[Interface]:
    """The interfaces of this machine that have an IP address, those for other machines first."""
    states = psutil.net_if_stats()
    everything = []
    for name, texts in available().items():
        plain = sorted((text.split("%", 1)[0] for text in texts), key=lambda text: ":" in text)
        state = states.get(name)
        everything.append(
            Interface(
                name,
                tuple(plain),
                state.mtu if state is not None else 0,
                state.speed if state is not None else 0,
                state is None or state.isup,
                _kind(name, plain),
            )
        )
    order = ("network", "wireless", "WSL", "VPN", "docker", "loopback")
    return sorted(everything, key=lambda one: (not one.up, order.index(one.kind)))


def _kind(name: str, texts: list[str]) -> str:
    if texts and all(is_loopback(text) for text in texts):
        return "loopback"
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "network")


def gloo_choice(timeout_s: float, environ: Mapping[str, str] = os.environ) -> Choice:
    """Which address Gloo will take: that of GLOO_SOCKET_IFNAME, else that of the host name, else the loopback's."""
    known = {one.name: one for one in found()}
    asked = environ.get(VARIABLE, "")
    if asked:
        names = tuple(name for name in asked.split(",") if name)
        first = known.get(names[0]) if names else None
        return Choice(names, first.addresses[0] if first else "", f"{VARIABLE} says so")
    name = socket.gethostname()
    # As Gloo itself: the first one that can be bound, in the system's order.
    for address in resolve(name, timeout_s, ipv4_first=False) or []:
        if _can_bind(address):
            owners = tuple(one.name for one in known.values() if address.split("%", 1)[0] in one.addresses)
            if not owners and is_loopback(address):
                owners = tuple(one.name for one in known.values() if one.kind == "loopback")
            return Choice(owners, address, f"this machine's name ({name}) resolves to it")
    loopback = next((one for one in known.values() if one.kind == "loopback"), None)
    return Choice(
        (loopback.name,) if loopback else (),
        loopback.addresses[0] if loopback else "",
        f"this machine's name ({name}) resolves to no address of its own",
    )


def outward(addresses: list[Interface] | None = None) -> Interface | None:
    """The interface to give to Gloo for other machines, the most likely one; None if there is only loopback."""
    candidates = [
        one for one in (found() if addresses is None else addresses) if one.up and one.kind != "loopback"
    ]
    usable = [one for one in candidates if any(not is_link_local(address) for address in one.addresses)]
    routed = _default_route()
    return next((one for one in usable if one.name == routed), usable[0] if usable else None)


def _default_route() -> str:
    """The name of the interface of the default route, where the system shows it in a file."""
    try:
        lines = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.split()[0] for line in lines if line.split()[1:2] == ["00000000"]), "")


def _can_bind(address: str) -> bool:
    with socket.socket(family(address), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
