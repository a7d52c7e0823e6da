"""Network interfaces for Gloo, which takes them by name from GLOO_SOCKET_IFNAME."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping

import psutil

from pyddpdiag.errors import UsageError

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
        if any(ipaddress.ip_address(a.split("%", 1)[0]).is_loopback for a in addresses):
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
