"""What the mesh check concludes from facts that cannot be made on one system, and how fast a link is on a busy one."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from dataclasses import replace

from pyddpdiag.doctor.mesh import probe
from pyddpdiag.doctor.mesh.facts import Facts, Spot
from pyddpdiag.doctor.mesh.judge import judge
from pyddpdiag.doctor.mesh.probe import Attempt
from pyddpdiag.doctor.mesh.verdict import Verdict
from pyddpdiag.model.fields import from_json


def facts(rank: int, **changes: object) -> Facts:
    spot = Spot("eth0", f"10.0.0.{rank + 1}", 4000, 1500)
    versions = {"torch": "2.13.0", "pyddpdiag": "0.1.0"}
    made = Facts(rank, 4, f"host{rank}", "Linux", versions, {}, (spot,), spot.address, "eth0", "t")
    return replace(made, **changes)  # type: ignore[arg-type]


def attempts(count: int, rate: float = 900.0) -> list[Attempt]:
    return [
        Attempt(a, b, "eth0", f"10.0.0.{b + 1}", f"10.0.0.{a + 1}", "ok", 0.1, rate)
        for a in range(count)
        for b in range(count)
        if a != b
    ]


def kinds(verdict: Verdict) -> list[str]:
    return [trouble.kind for trouble in verdict.troubles]


def test_four_healthy_ranks_have_no_trouble_and_the_verdict_survives_the_wire() -> None:
    verdict = judge(4, [facts(rank) for rank in range(4)], [], {}, attempts(4), {})
    assert verdict.troubles == () and verdict.exit_code == 0
    assert from_json(Verdict, json.loads(json.dumps(verdict.to_fields()))) == verdict


def test_systems_that_differ_are_named() -> None:
    ranks = [facts(0), facts(1), facts(2), facts(3, system="Windows")]
    verdict = judge(4, ranks, [], {}, attempts(4), {})
    assert kinds(verdict) == ["system"] and verdict.troubles[0].ranks == (3,)


def test_torch_that_differs_is_a_warning_with_the_line() -> None:
    ranks = [facts(0), facts(1), facts(2, versions={"torch": "2.12.1", "pyddpdiag": "0.1.0"}), facts(3)]
    (trouble,) = judge(4, ranks, [], {}, attempts(4), {}).troubles
    assert trouble.warning and trouble.lines == {2: ("pip install torch==2.13.0",)}


def test_one_slow_link_among_many_is_named_and_ordinary_differences_are_not() -> None:
    tried = attempts(4)
    slow = [replace(a, mbit=60.0) if (a.rank, a.peer) == (1, 2) else a for a in tried]
    (trouble,) = judge(4, [facts(rank) for rank in range(4)], [], {}, slow, {}).troubles
    assert (trouble.kind, trouble.ranks, trouble.warning) == ("slow", (1, 2), True)
    noisy = [replace(a, mbit=300.0 if a.peer % 2 else 900.0) for a in tried]
    assert judge(4, [facts(rank) for rank in range(4)], [], {}, noisy, {}).troubles == ()


def test_a_rank_that_falls_silent_and_a_second_one_of_its_number_are_named() -> None:
    verdict = judge(
        4, [facts(rank) for rank in range(4)], [facts(1), facts(7)], {2: "gone."}, attempts(4), {}
    )
    assert kinds(verdict) == ["duplicate", "world_size", "silent"]


def test_a_group_that_fails_is_explained_for_the_rank_that_knows_most() -> None:
    said = "RuntimeError: makeDeviceForHostname(): unsupported gloo device"
    formed = {
        0: {"ok": False, "seconds": 3.0, "error": "no group"},
        1: {"ok": False, "seconds": 1.0, "error": said},
    }
    ranks = [facts(0, world_size=2), facts(1, world_size=2)]
    verdict = judge(2, ranks, [], {}, attempts(2), formed)
    assert kinds(verdict) == ["group"] and verdict.group == "failed"
    assert verdict.troubles[0].lines == {1: ("unset GLOO_DEVICE_TRANSPORT",)}


# What a block waits for a core, once.
STALL_S = 0.25


def test_a_block_that_waits_for_a_core_does_not_make_its_link_slow() -> None:
    ours, theirs = socket.socketpair()
    blocks = []

    def answer() -> None:
        with theirs:
            probe._exactly(theirs, probe._FIRST)
            theirs.sendall(b"1")
            for place in itertools.count():
                try:
                    blocks.append(len(probe._exactly(theirs, probe._BLOCK)))
                except OSError:
                    return
                if place == 2:
                    time.sleep(STALL_S)
                theirs.sendall(b"1")

    other = threading.Thread(target=answer)
    other.start()
    begin = time.perf_counter()
    with ours:
        rate = probe._write(ours)
    elapsed = time.perf_counter() - begin
    other.join(60)
    assert len(blocks) >= 3 and elapsed > STALL_S
    # The mean of all of them; the median does not know the one that waited.
    assert rate > 2 * sum(blocks) * 8 / elapsed / 1e6
