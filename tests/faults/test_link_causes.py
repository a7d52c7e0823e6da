"""A training between two hosts over links with a fault: the report names the cause and the link."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.links import NAMES, limit, lose, on_hosts, two_hosts, why_no_loss
from support.promised import need

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report

FIRST, SECOND = NAMES
MBIT = 150
TIMEOUT_S = 150
CAUSES = {
    *("flapping_link", "packet_loss", "high_latency", "slow_link", "wrong_interface"),
    *("interface_order", "loopback"),
}

pytestmark = pytest.mark.usefixtures("links")


def train(
    folder: Path,
    *,
    steps: int = 24,
    interfaces: tuple[str, str] = (FIRST, FIRST),
    fault: Callable[[tuple[str, str]], None] = lambda hosts: None,
) -> RunReport:
    """The report of a training on two hosts; `fault` does something to them before."""
    where = (str(folder / "run"), "tcp://10.77.0.1:29518")
    commands = [
        [sys.executable, "-m", "support.wired_job", str(rank), "2", *where, interfaces[rank], str(steps)]
        for rank in range(2)
    ]
    with two_hosts((MBIT, MBIT)) as hosts:
        fault(hosts)
        ends = on_hosts(hosts, commands, folder, TIMEOUT_S)
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    return load_report(folder / "run")


def causes(report: RunReport) -> dict[str, Finding]:
    # That the second link would do as well is noted.
    return {
        finding.kind: finding
        for finding in report.verdict.findings
        if finding.kind in CAUSES and finding.severity != "note"
    }


def test_sound_links_have_no_cause_and_carry_what_was_sent(tmp_path: Path) -> None:
    report = train(tmp_path)
    assert causes(report) == {}
    assert {finding.kind for finding in report.verdict.findings} >= {"exposed_communication"}
    links = {(link.rank, link.peer): link for link in report.links}
    assert set(links) == {(0, 1), (1, 0)}
    gradients = 3 * (512 * 512 + 512) * 4
    for link in links.values():
        assert (link.interface, link.peer_interface, link.loopback) == (FIRST, FIRST, False)
        # Between two ranks each sends as much as there is to average; the first steps may be before the first reading,
        # on a machine without a free core a third of them.
        assert link.bytes is not None and 12 * gradients <= link.bytes <= 26 * gradients
        # A link of 150 Mbit/s takes 53 ms for 1 MB; the bucket of tokens lets some pass at once.
        assert link.busy_ms_per_mb is not None and link.busy_ms_per_mb > 20
        assert link.min_rtt_ms is not None and link.min_rtt_ms < 20


def test_one_slow_direction_is_named(tmp_path: Path) -> None:
    found = causes(train(tmp_path, steps=16, fault=lambda hosts: limit(hosts[1], FIRST, MBIT // 6)))
    assert set(found) == {"slow_link"}
    slow = found["slow_link"]
    # Rank 1 sends slowly.
    assert (slow.rank, slow.peer, slow.severity) == (1, 0, "warning")
    # On a full machine its messages vary more.
    assert slow.confidence in ("high", "medium")
    assert slow.cost_ms is not None and slow.cost_ms > 100


def test_a_host_that_loses_what_it_receives_is_named(tmp_path: Path) -> None:
    need("packet-loss", why_no_loss())
    found = causes(train(tmp_path, steps=40, fault=lambda hosts: lose(hosts[1], 0.05)))
    loss = found["packet_loss"]
    assert (loss.rank, loss.peer) == (1, 0)
    assert 0.02 < float(loss.evidence["loss_fraction"] or 0) < 0.1


def test_interfaces_in_another_order_are_named(tmp_path: Path) -> None:
    report = train(tmp_path, interfaces=(f"{FIRST},{SECOND}", f"{SECOND},{FIRST}"))
    found = causes(report)
    assert found["interface_order"].severity == "warning", report.links
    assert "slow_link" not in found and "packet_loss" not in found


@contextmanager
def flapping(each_s: float, down_s: float) -> Iterator[Callable[[tuple[str, str]], None]]:
    """A fault: the second host's link goes down again and again until the end of the block."""
    over = threading.Event()

    def go(host: str) -> None:
        while not over.wait(each_s - down_s):
            for state, seconds in (("down", down_s), ("up", 0.0)):
                command = ["ip", "-n", host, "link", "set", FIRST, state]
                subprocess.run(command, check=False, capture_output=True, timeout=TIMEOUT_S)
                over.wait(seconds)

    with ThreadPoolExecutor(1) as pool:
        yield lambda hosts: pool.submit(go, hosts[1]) and None
        over.set()


def test_a_link_that_goes_down_for_moments_is_named_beside_a_slow_network(tmp_path: Path) -> None:
    with flapping(4.0, 0.4) as fault:
        report = train(tmp_path, steps=60, fault=fault)
    first, *rest = report.verdict.findings
    assert (first.kind, first.rank is not None) == ("flapping_link", True), report.verdict
    assert first.confidence in ("medium", "high")
    assert "exposed_communication" in {finding.kind for finding in rest}
    stalled_s = first.evidence["stalled_s"]
    assert isinstance(stalled_s, float) and stalled_s > 0.5
    # Rounded: where the steps lost no more than the readings saw, both are the same.
    assert first.cost_s is not None and first.cost_s >= 0.99 * stalled_s
