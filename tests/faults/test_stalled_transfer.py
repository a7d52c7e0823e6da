"""A network that carries nothing any more: the report says so afterwards, as a look at the run had said."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.links import NAMES, cut, limit, on_hosts, switched_hosts

from pyddpdiag.pipeline import load_report

MBIT = 150
TIMEOUT_S = 8

pytestmark = pytest.mark.usefixtures("links")


def pull_the_cable(hosts: Sequence[str]) -> None:
    cut(hosts[-1])


def let_no_large_packet_pass(hosts: Sequence[str]) -> None:
    """The last host's port of the switch drops what is larger, and tells nobody; what is small passes."""
    # Packets as they are on the wire: a large one that the kernel cuts later passes such a port.
    for host in hosts:
        limit(host, NAMES[0], MBIT, burst_kb=2)
    port = ("ip", "netns", "exec", switch_of(hosts), "ip", "link", "set", f"port{len(hosts) - 1}")
    subprocess.run([*port, "mtu", "1000"], check=True, capture_output=True, timeout=60)


def switch_of(hosts: Sequence[str]) -> str:
    """The switch is made before the hosts."""
    first, _, rest = hosts[0].removeprefix("ddpdiag-").partition("-")
    return f"ddpdiag-{int(first) - 1}-{rest}"


@pytest.mark.parametrize("fault, count", [(pull_the_cable, 3), (let_no_large_packet_pass, 2)])
def test_after_the_timeout_the_report_says_where_the_transfer_stood(
    fault: Callable[[Sequence[str]], None], count: int, tmp_path: Path
) -> None:
    where = (str(tmp_path / "run"), "tcp://10.77.0.1:29518", NAMES[0])
    commands = [
        [sys.executable, "-m", "support.wired_job", str(rank), str(count), *where, "100000", str(TIMEOUT_S)]
        for rank in range(count)
    ]

    def act() -> None:
        until = time.monotonic() + 90
        while not (tmp_path / "trains").exists() and time.monotonic() < until:
            time.sleep(0.05)
        fault(hosts)

    with switched_hosts(count, [MBIT]) as hosts, ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        ends = on_hosts(hosts, commands, tmp_path, 150)
        acting.result()
    assert all(code for code, _, _ in ends), str(ends)
    first, *rest = load_report(tmp_path / "run").verdict.findings
    assert first.kind == "transport_stalled", first
    # At a cable that is pulled between two messages, nothing may be under way.
    assert first.evidence["unconfirmed_segments"] or count == 3
    # Of three hosts the one at which the dead links meet, or the link, where only one had something to carry;
    # between two nobody knows which end it is.
    ends_of_link = {first.rank, first.peer}
    assert ends_of_link in ([{2, None}, {0, 2}, {1, 2}] if count == 3 else [{0, 1}])
    assert "unknown" not in "".join(one.message for one in rest if one.kind == "operation_failed")
