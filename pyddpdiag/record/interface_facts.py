"""The network interfaces of this machine, as the sidecar tells them."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from pyddpdiag.model.sidecar import Interface


def found() -> dict[str, Interface]:
    """Every interface that has an IP address, by name; empty if the system does not tell."""
    try:
        all_addresses, states = psutil.net_if_addrs(), psutil.net_if_stats()
    except (OSError, psutil.Error):
        return {}
    interfaces = {}
    for name, addresses in all_addresses.items():
        texts = tuple(
            _with_prefix(each.address, each.netmask)
            for each in addresses
            if each.family in (socket.AF_INET, socket.AF_INET6)
        )
        state = states.get(name)
        if texts:
            # 0: the system does not know the speed.
            speed = state.speed or None if state is not None else None
            interfaces[name] = Interface(texts, speed, state is None or state.isup)
    return interfaces


def _with_prefix(address: str, mask: str | None) -> str:
    """ "IP/PREFIX", without the scope, which only has a meaning here; without the prefix if that is not known."""
    ip = address.split("%", 1)[0]
    try:
        bits = int(ipaddress.ip_address(mask)) if mask else 0
    except ValueError:
        return ip
    return f"{ip}/{bits.bit_count()}" if bits else ip
