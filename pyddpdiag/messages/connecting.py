"""Messages of Gloo while it connects the ranks: interfaces, host names, transports, firewalls, stale files."""

from __future__ import annotations

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import ByShell, Run, SetVariable, UnsetVariable

_FILE = text_pattern(r"file://|FileStore")
_REMOTE = r"remote=\[?(?P<address{0}>{1})\]?:(?P<port{0}>\d+)"
# Gloo of torch before 1.13.
_OLDER = (
    r"gloo[\\/]transport[\\/]tcp[^\n]*connect \[?(?P<address{0}>{1})\]?:(?P<port{0}>\d+): Connection refused"
)
_ANY = r"[^\s\[\]]+"
_LOOPBACK = r"(?:(?:::ffff:)?127\.\d+\.\d+\.\d+|::1)"
# Of another machine, perhaps: no firewall is on the way to a loopback address.
_ELSEWHERE = rf"(?!{_LOOPBACK}){_ANY}"
# Not within a name, as in recvValueWithTimeout.
_TIMED_OUT = r"\b(?:timed out|timeout)\b"

MESSAGES: tuple[Message, ...] = (
    Message(
        "interface_unknown",
        text_pattern(
            r"(?<!rp\s!=\snullptr\.\s)Unable to find address for: (?P<interface>\S*)",
            r"Unable to find interface for: (?P<interface__2>\S+)",
        ),
        "Gloo finds no interface of this name with an address. GLOO_SOCKET_IFNAME takes exact names, separated by "
        "commas: no patterns (^docker, eth and =eth0 are NCCL's syntax), no addresses, no blanks.",
        "Set GLOO_SOCKET_IFNAME to the exact name of one interface ('pyddpdiag doctor' lists them), or unset it.",
        lines=(UnsetVariable("GLOO_SOCKET_IFNAME"),),
    ),
    Message(
        "transport_missing",
        text_pattern(
            r"unsupported gloo (?:device|transport)",
            r"makeDeviceFor\w+\(\): unsupported",
            r"unknown transport[^\n]*gloo|gloo[^\n]*transport[^\n]*not (?:built|supported|available)",
        ),
        "This torch cannot create the Gloo transport: GLOO_DEVICE_TRANSPORT asks for one that its wheel does not "
        "have, or it is one of torch 2.8 to 2.10 on Windows, whose Gloo is broken.",
        "Unset GLOO_DEVICE_TRANSPORT.",
        lines=(UnsetVariable("GLOO_DEVICE_TRANSPORT"),),
        windows_fix="Unset GLOO_DEVICE_TRANSPORT, and use torch 2.11 or newer.",
        windows_lines=(UnsetVariable("GLOO_DEVICE_TRANSPORT"), Run('pip install "torch>=2.11"')),
    ),
    Message(
        "stale_file",
        text_pattern(
            rf"connectFullMesh failed[^\n]*(?:refused|reset)[^\n]*{_REMOTE.format('', _ANY)}",
            r"connectFullMesh failed[^\n]*refused",
        ),
        "The ranks met through a file, and nobody listens at an address in it: the file is most likely left over "
        "from an earlier run and holds dead addresses. It looks like a firewall, but a firewall seldom refuses at "
        "once.",
        "End all ranks, delete the file of init_method, and use a new file name for every run.",
        role=Role.NETWORK,
        needs=_FILE,
    ),
    Message(
        "hostname_loopback",
        text_pattern(
            rf"connectFullMesh failed[^\n]*{_REMOTE.format('', _LOOPBACK)}",
            rf"(?:Connection refused|timed out)[^\n]*{_REMOTE.format('__2', _LOOPBACK)}",
            rf"{_OLDER.format('__3', _LOOPBACK)}",
            r"Unable to resolve hostname",
            r"Using the loopback address as fallback",
        ),
        "A rank gave the others a loopback address: its host name resolves to 127.x "
        "(as in Debian's /etc/hosts) or to nothing. Ranks on other machines then connect to themselves.",
        "Set GLOO_SOCKET_IFNAME on every rank to the interface that leads to the other machines, or correct the "
        "hosts file. If all ranks are on one machine and meet through a file, the file is left over from an earlier "
        "run: delete it.",
        role=Role.NETWORK,
        lines=(SetVariable("GLOO_SOCKET_IFNAME", "INTERFACE"),),
    ),
    Message(
        "connection_refused",
        text_pattern(
            rf"connectFullMesh failed[^\n]*refused[^\n]*{_REMOTE.format('', _ANY)}",
            _OLDER.format("__2", _ANY),
        ),
        "A rank's machine answers, but nobody listens at the address that the rank gave: it has ended, or the "
        "addresses are those of an earlier run (a rendezvous file that was not deleted), or a firewall rejects the "
        "connection.",
        "See whether the rank at that address failed first. If the ranks meet through a file, delete it and use a "
        "new name for every run. Otherwise let the ranks' ports through the firewall, both ways.",
        role=Role.NETWORK,
        lines=(ByShell("sudo {iptables} -I INPUT -p tcp -s {address} -j ACCEPT"),),
    ),
    Message(
        "connection_filtered",
        text_pattern(
            rf"connectFullMesh failed[^\n]*{_TIMED_OUT}[^\n]*{_REMOTE.format('', _ELSEWHERE)}",
            rf"{_TIMED_OUT}[^\n]*{_REMOTE.format('__2', _ELSEWHERE)}",
            rf"connectFullMesh failed[^\n]*{_TIMED_OUT}",
            rf"gloo[\\/]transport[\\/][^\n]*Connect timeout \[(?P<address__3>{_ELSEWHERE})\]:(?P<port__3>\d+)",
        ),
        "No answer from another rank's address: a firewall drops Gloo's connections, which use random ports in both "
        "directions; or the address belongs to an interface that the others cannot reach.",
        "Let the ephemeral ports through between the ranks' machines, both ways, or pin the right interface with "
        "GLOO_SOCKET_IFNAME. 'pyddpdiag doctor --mesh' on every rank shows which pairs cannot connect.",
        role=Role.NETWORK,
        lines=(
            ByShell(
                "sudo {iptables} -I INPUT -p tcp -s {address} -j ACCEPT",
                'New-NetFirewallRule -DisplayName "python (Gloo)" -Direction Inbound -Program '
                "(Get-Command python).Source -Action Allow",
            ),
        ),
    ),
    Message(
        "unroutable",
        text_pattern(
            r"(?:connectFullMesh failed[^\n]*)?(?:No route to host|(?:Network|Host) is unreachable)"
            rf"[^\n]*{_REMOTE.format('', _ANY)}",
            r"connectFullMesh failed[^\n]*(?:No route to host|unreachable)",
            r"gloo/transport/tcp/[^\n]*connect: (?:No route to host|(?:Network|Host) is unreachable)",
        ),
        "This machine has no route to the address that another rank gave: it belongs to another network (docker, "
        "VPN, a second card).",
        "Set GLOO_SOCKET_IFNAME on every rank to the interface that they all share.",
        role=Role.NETWORK,
        lines=(SetVariable("GLOO_SOCKET_IFNAME", "INTERFACE"),),
    ),
    Message(
        "full_mesh_failed",
        text_pattern(r"connectFullMesh failed", r"Gloo failed to connect"),
        "Gloo could not connect all ranks with each other and does not say why: a wrong interface, the limit of open "
        "files (each pair takes descriptors), or a rank that failed meanwhile.",
        "Pin one interface with GLOO_SOCKET_IFNAME on every rank, raise the limit of open files, and read the other "
        "ranks' logs. 'pyddpdiag doctor --mesh' on every rank shows which pairs cannot connect.",
        role=Role.NETWORK,
        lines=(SetVariable("GLOO_SOCKET_IFNAME", "INTERFACE"), ByShell("ulimit -n 65536")),
    ),
    Message(
        "host_unnamed",
        text_pattern(
            r"GlooDeviceFactory::make\w+\(\): interface or hostname can't be empty",
            r"\brp != nullptr\. Unable to find address for: (?P<name>\S+)",
            r"enforce fail at [^\n]*gloo[\\/]transport[\\/]\w+[\\/](?:device|address|listener|socket)\.cc[^\n]*\brv\b",
        ),
        "Gloo found no address of this machine by its name: the name is unknown here, or stands for an address that no "
        "interface has. On Windows, most likely the computer's name holds other characters than letters, digits and "
        "hyphens.",
        "Name the interface in GLOO_SOCKET_IFNAME ('pyddpdiag doctor' lists them), or give the machine's name its "
        "address in the hosts file (on Windows, give it a plain name). Set MASTER_ADDR to an address, not to a name.",
        lines=(SetVariable("GLOO_SOCKET_IFNAME", "INTERFACE"), SetVariable("MASTER_ADDR", "127.0.0.1")),
    ),
    Message(
        "address_family",
        text_pattern(r"ss1\.ss_family == ss2\.ss_family", r"address family mismatch"),
        "One rank gave an IPv4 address and another one an IPv6 address, and Gloo connects only addresses of one kind.",
        "Set GLOO_SOCKET_IFNAME on every rank to an interface that has an address of the same kind on all of them.",
        role=Role.NETWORK,
        lines=(SetVariable("GLOO_SOCKET_IFNAME", "INTERFACE"),),
    ),
    Message(
        "too_many_files",
        text_pattern(r"Too many open files|EMFILE"),
        "This process has reached its limit of open files and sockets.",
        "Raise the limit before you start it.",
        lines=(ByShell("ulimit -n 65536"),),
    ),
)
