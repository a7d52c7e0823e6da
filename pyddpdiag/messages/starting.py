"""Messages before the ranks are connected: stores and rendezvous, interfaces, host names, transports, firewalls."""

from __future__ import annotations

from pyddpdiag.messages import torchrun
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
        "store_without_libuv",
        text_pattern(r"use_libuv was requested but PyTorch was (?:built|build) without libuv"),
        f"{torchrun.WHY}. So does a TCPStore that a script makes by itself; init_process_group does not.",
        f"{torchrun.FIX} For a TCPStore of your own pass use_libuv=False.",
        lines=torchrun.LINES_ON_WINDOWS,
    ),
    Message(
        "port_in_use",
        text_pattern(
            r"failed to bind to \[?(?:[^\s\]]+)\]?:(?P<port>\d+)[^\n]*address already in use",
            r"\bport: (?P<port__2>\d+), useIpv6[^\n]*EADDRINUSE",
            r"EADDRINUSE|\berrno: 98\b|\[Errno 98\]|address already in use|\[(?:Errno|WinError) 10048\]"
            r"|only one usage of each socket address",
        ),
        "Another process holds the port of the rendezvous: a leftover of an earlier run, or another program.",
        "Start with another port (MASTER_PORT, or torchrun --master-port), or end the process that holds it.",
        lines=(ByShell("ss -ltnp", "netstat -ano -p tcp"), SetVariable("MASTER_PORT", "29501")),
        torch_only=True,
    ),
    Message(
        "port_out_of_range",
        text_pattern(
            r"port must have value from 0 to 65535 but was (?P<port>\d+)",
            r"Port out of range 0-65535|port must be 0-65535",
        ),
        "The port of the rendezvous is out of range: often the number of a job was added to a port.",
        "Give a port from 1024 to 65535, such as 20000 plus the job's number modulo 10000.",
        lines=(SetVariable("MASTER_PORT", "29501"),),
    ),
    Message(
        "rank_out_of_range",
        text_pattern(
            r"rank < size\. (?P<number>\d+) vs (?P<world_size>\d+)",
            r"rank (?:should|must) be (?:less than|in)[^\n]*world[_ ]size",
        ),
        "A rank has a number that the group does not have: ranks count from 0, and WORLD_SIZE is the number of all "
        "processes of all machines.",
        "Let torchrun set RANK and WORLD_SIZE, or set them so that 0 <= RANK < WORLD_SIZE.",
        lines=(SetVariable("WORLD_SIZE", "2"), SetVariable("RANK", "0")),
    ),
    Message(
        "clients_missing",
        text_pattern(
            r"Timed out after (?P<seconds>\d+) seconds waiting for clients\. "
            r"(?P<came>\d+)/(?P<world_size>\d+) clients joined",
            r"(?P<came__2>\d+)/(?P<world_size__2>\d+) clients joined",
            r"Timed out initializing process group in store based barrier[^\n]*world_size=(?P<world_size__3>\d+), "
            r"(?:num_workers|worker_count)=(?P<came__3>\d+)",
        ),
        "Not all ranks reached the store within its timeout: a rank was never started, failed before, cannot "
        "connect, or the world size is wrong.",
        "Compare WORLD_SIZE with the number of processes that were started, and read the logs of those that are "
        "missing. 'pyddpdiag doctor --mesh' on every rank names them.",
        lines=(Run("pyddpdiag doctor --mesh"),),
    ),
    Message(
        "address_not_bindable",
        text_pattern(
            r"failed to (?:connect|bind) to \[?(?P<address>[^\s\]]+)\]?:(?P<port>\d+)[^\n]*\b10049\b",
            r"system error: 10049|WSAEADDRNOTAVAIL|\[WinError 10049\]",
        ),
        "The name resolves to an address that no interface here has (Docker Desktop adds kubernetes.docker.internal "
        "to the hosts file). Often it is only a warning: torch goes on with the next address.",
        "If the start fails, give a real address of rank 0's machine as MASTER_ADDR (127.0.0.1 if all "
        "ranks are here).",
        role=Role.WARNING,
        lines=(SetVariable("MASTER_ADDR", "127.0.0.1"),),
    ),
    Message(
        "address_link_local",
        text_pattern(
            r"(?P<address>fe80:[0-9a-f:]*(?:%\w+)?)[^\n]*(?:errno: 22|errno 22|Invalid argument|\b10022\b)",
            r"(?:errno: 22|errno 22)[^\n]*(?P<address__2>fe80:[0-9a-f:]*)",
        ),
        "A link-local IPv6 address (fe80::...) is useless without the interface that it belongs to, and torch drops "
        "that part of it.",
        "Give a routable IPv4 address of rank 0's machine as MASTER_ADDR, or a name that resolves to one.",
        role=Role.NETWORK,
        lines=(SetVariable("MASTER_ADDR", "ADDRESS-OF-RANK-0"),),
    ),
    Message(
        "name_unresolved",
        text_pattern(
            r"IPv[46] network addresses of \((?P<name>[^,)]*), (?P<port>\d+)\) cannot be retrieved",
            r"gai error|getaddrinfo failed|Name or service not known|nodename nor servname provided"
            r"|No such host is known|Temporary failure in name resolution|network addresses cannot be retrieved",
        ),
        "A host name cannot be resolved to an address: misspelt, unknown to this machine's name server "
        "and hosts file, "
        "or with a blank before or after it. torch tries IPv6 first and reports that, too.",
        "Give a routable IPv4 address of rank 0's machine as MASTER_ADDR, without blanks.",
        role=Role.NETWORK,
        lines=(SetVariable("MASTER_ADDR", "ADDRESS-OF-RANK-0"),),
        torch_only=True,
    ),
    Message(
        "store_refused",
        text_pattern(
            r"(?:client socket|TCPClient|TCPStore)[^\n]*\[?(?P<address>[^\s\[\]]+)\]?[:,] ?(?P<port>\d+)[^\n]*"
            r"(?:Connection refused|\b111\b|\b10061\b)",
            r"failed to connect to TCPStore[^\n]*refused",
        ),
        "Nothing listens at the address of the store: rank 0 is not running yet, has ended, or is elsewhere.",
        "Start rank 0 (or torchrun) on the machine of MASTER_ADDR, "
        "and give all ranks the same MASTER_ADDR and MASTER_PORT.",
        role=Role.NETWORK,
    ),
    Message(
        "store_unreachable",
        text_pattern(
            r"client socket has timed out after (?P<timeout_ms>\d+)ms while trying to connect to "
            r"\((?P<address>[^,]+), (?P<port>\d+)\)",
            r"client socket[^\n]*\[?(?P<address__2>[^\s\[\]]+)\]?[:,] ?(?P<port__2>\d+)[^\n]*"
            r"(?:timed out|No route to host|unreachable|\b10060\b|\b10065\b)",
        ),
        "The store at rank 0 does not answer in time: rank 0 is not there, the address or port is wrong, or a "
        "firewall in between drops the packets.",
        "Check that rank 0 runs there, and open its port in the firewall of its machine.",
        role=Role.NETWORK,
        lines=(
            ByShell(
                "sudo iptables -I INPUT -p tcp --dport {port} -j ACCEPT",
                'New-NetFirewallRule -DisplayName "torch store" -Direction Inbound -Protocol TCP -LocalPort {port} '
                "-Action Allow",
            ),
        ),
    ),
    Message(
        "store_timeout",
        text_pattern(
            r"\bwait timeout\b(?: after (?P<timeout_ms>\d+)ms)?",
            r"Timeout waiting for key: (?P<key>\S+) after (?P<timeout_ms__2>\d+) ms",
            r"\bSocket Timeout\b",
            r"DistStoreError|StoreTimeoutError",
        ),
        "A rank waited for a value that another rank never put into the store: that rank was not started, failed, or "
        "uses another rendezvous (another file, port or world size). On Windows, and from WSL2 to another machine, "
        "address translation and port proxies may be the cause.",
        "See the log of the rank that is missing; 'pyddpdiag doctor --mesh' on every rank names it. WSL2: "
        "switch it to mirrored networking (networkingMode=mirrored in .wslconfig), or run natively.",
        role=Role.WAITED,
        lines=(Run("pyddpdiag doctor --mesh"),),
        torch_only=True,
    ),
    Message(
        "environment_incomplete",
        text_pattern(
            r"environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
            r"KeyError: '(?P<name__2>RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)'",
        ),
        "init_process_group was called as a rank of torchrun, but the variables that torchrun sets are missing.",
        "Start the script with torchrun, or give init_method, rank and world_size.",
        lines=torchrun.lines(False),
        windows_lines=torchrun.lines(True),
    ),
    Message(
        "not_initialised",
        text_pattern(r"Default process group has not been initialized"),
        "A collective or DDP was used before init_process_group, or after destroy_process_group.",
        "Call init_process_group first, on every rank.",
    ),
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
