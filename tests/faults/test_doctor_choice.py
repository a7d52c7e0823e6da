"""Which address Gloo takes on a host with several: predicted, and then seen; and mended where it is a bad one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.commands import ran
from support.doctored import doctor, environment, found, variables_after
from support.links import NAMES, hosts_file, inside, two_hosts
from support.promised import need

TIMEOUT_S = 120
SEES = """
import json, os, sys, psutil, torch.distributed as dist
from pyddpdiag.ranks.interfaces import gloo_choice
answers = []
for name in ("", sys.argv[1]):
    os.environ["GLOO_SOCKET_IFNAME"] = name
    predicted = gloo_choice(5.0).address
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    listening = [one.laddr.ip for one in psutil.Process().net_connections(kind="tcp") if one.status == "LISTEN"]
    answers.append([predicted, sorted(set(listening))])
    dist.destroy_process_group()
print(json.dumps(answers))
os._exit(0)
"""

pytestmark = pytest.mark.usefixtures("links")


@pytest.fixture
def host() -> Iterator[str]:
    with two_hosts((200, 200)) as (first, _):
        yield first


def test_the_address_that_gloo_takes_is_predicted(host: str) -> None:
    added = ran(
        *inside(host, "ip", "-6", "addr", "add", "fd00:77::1/64", "dev", NAMES[0], "nodad"), timeout_s=60
    )
    need("ipv6", f"no IPv6 here: {added.stderr}" if added.returncode else "")
    own = socket.gethostname()
    with hosts_file(host, f"127.0.0.1 localhost\n10.77.0.1 {own}\nfd00:77::1 {own}\n"):
        done = ran(
            *inside(host, sys.executable, "-c", SEES, NAMES[0]), env=environment(), timeout_s=TIMEOUT_S
        )
    assert done.returncode == 0, done.stderr
    by_name, by_interface = json.loads(done.stdout)
    assert by_name[0] in ("10.77.0.1", "fd00:77::1") and by_name[1] == [by_name[0]]
    assert by_interface == ["10.77.0.1", ["10.77.0.1"]]


def test_a_host_name_on_loopback_and_an_interface_that_is_down_are_mended_by_the_lines(host: str) -> None:
    own = socket.gethostname()
    places = ("--world-size", 2, "--local-world-size", 1)
    with hosts_file(host, f"127.0.0.1 localhost\n127.0.1.1 {own}\n"):
        bad = found(doctor(*places, prefix=inside(host))[1])
        assert list(bad) == ["host name"] and "127.0.1.1" in bad["host name"]["text"]
        variables = variables_after(bad["host name"]["lines"], {})
        name = variables["GLOO_SOCKET_IFNAME"]
        subprocess.run(inside(host, "ip", "link", "set", name, "down"), check=True, timeout=60)
        bad = found(doctor(*places, prefix=inside(host), variables=variables)[1])
        assert list(bad) == ["GLOO_SOCKET_IFNAME"] and f"{name} is down" in bad["GLOO_SOCKET_IFNAME"]["text"]
        variables = variables_after(bad["GLOO_SOCKET_IFNAME"]["lines"], variables)
        assert variables["GLOO_SOCKET_IFNAME"] in set(NAMES) - {name}
        assert found(doctor(*places, prefix=inside(host), variables=variables)[1]) == {}
