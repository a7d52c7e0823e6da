"""What other programs send over the ranks' interfaces, from the interfaces' counters and the links' bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.reported import findings
from support.wired import MEGABYTES, only, ring

from pyddpdiag.analyse.links.connections import Connection
from pyddpdiag.analyse.links.other_traffic import OtherTraffic, other_traffic, single_flow
from pyddpdiag.analyse.links.pairs import links
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.sidecar import Interface, Sidecar, from_json, to_json
from pyddpdiag.trace.layout import ConnectionValue as V

MB = 1_000_000


def ring_of_two() -> tuple[LinkStats, ...]:
    """100 MB each way between two hosts."""
    ends = "10.0.0.1:7000", "10.0.0.2:7001"
    acked = np.zeros((2, len(V)), np.int64)
    acked[1, V.BYTES_ACKED] = 100 * MB
    return links(
        [Connection(0, ends[0], ends[1], acked), Connection(1, ends[1], ends[0], acked)], sidecars({}, {})
    )


def sidecars(first: dict[str, int], second: dict[str, int]) -> dict[int, Sidecar]:
    return {
        rank: Sidecar(
            rank=rank,
            host=f"host{rank}",
            interfaces={"eth0": Interface((f"10.0.0.{rank + 1}/24",))},
            traffic={"eth0": traffic} if traffic else {},
        )
        for rank, traffic in enumerate((first, second))
    }


def test_what_others_send_is_what_the_ranks_did_not() -> None:
    of_all = sidecars({"sent": 400 * MB, "received": 106 * MB}, {"sent": 106 * MB, "received": 106 * MB})
    (found,) = other_traffic(ring_of_two(), of_all)
    assert (found.rank, found.interface, found.sends) == (0, "eth0", True)
    assert (found.other, found.own) == (290 * MB, 100 * MB)


def test_headers_and_confirmations_are_no_other_traffic() -> None:
    alike = {"sent": 109 * MB, "received": 110 * MB}
    assert other_traffic(ring_of_two(), sidecars(alike, alike)) == ()
    # A quarter of what the ranks send is the least that counts, and what the system does not tell does not.
    assert other_traffic(ring_of_two(), sidecars({"sent": 130 * MB, "received": 0}, {})) == ()


def test_ranks_of_one_host_share_its_counters() -> None:
    both = tuple(replace(link, rank=2 if link.rank == 0 else link.rank) for link in ring_of_two())
    of_all = sidecars({"sent": 215 * MB, "received": 100 * MB}, {})
    assert other_traffic(ring_of_two() + both, {**of_all, 2: of_all[0]}) == ()
    assert len(other_traffic(ring_of_two(), of_all)) == 1


def test_counters_survive_the_file() -> None:
    written = sidecars({"sent": 1, "received": 2}, {})[0]
    assert from_json(to_json(written))[0].traffic == {"eth0": {"sent": 1, "received": 2}}


def end(rank: int, sends: bool, megabytes: int) -> OtherTraffic:
    return OtherTraffic(rank, "eth0", sends, megabytes * MB, 100 * MB)


def test_the_sender_stands_out_and_the_receiver_is_its_other_end() -> None:
    found = single_flow([end(2, False, 110), end(1, True, 109)])
    assert found is not None and (found.rank, found.sends, found.peer) == (1, True, 2)
    alone = single_flow([end(2, False, 110), end(1, True, 30)])
    assert alone is not None and (alone.rank, alone.sends, alone.peer) == (2, False, None)


def test_where_several_send_or_receive_alike_none_stands_out() -> None:
    assert single_flow([]) is None
    assert single_flow([end(0, False, 300), end(1, False, 290), end(2, False, 310)]) is None


@pytest.mark.parametrize("heavy", [(1,), (0, 1, 2, 3)], ids=["one host", "all read their data so"])
def test_what_else_an_interface_carries_is_said_where_communication_is_exposed(
    tmp_path: Path, heavy: tuple[int, ...]
) -> None:
    for rank, writer in enumerate(ring(tmp_path, 4)):
        carried = MEGABYTES * MB * (3 if rank in heavy else 1)
        writer.sidecar["interfaces"] = [{"name": "eth0", "addresses": [f"10.0.0.{rank + 1}/24"]}]
        writer.sidecar["traffic"] = {"eth0": {"sent": MEGABYTES * MB, "received": carried}}
        writer.write(tmp_path)
    found = only(tmp_path)
    assert found.kind == "exposed_communication"
    if len(heavy) > 1:
        assert found.rank is None and found.evidence["other_traffic_bytes"] is None
        return
    assert (found.rank, found.peer) == (1, None)
    assert found.evidence["other_traffic_bytes"] == pytest.approx(190 * MB)
    assert "receive 190 MB over eth0 of rank 1's host meanwhile, the ranks 100 MB." in found.message
    assert found.advice.startswith("Find what uses eth0 on the host of rank 1")


@pytest.mark.parametrize("heavy", [False, True])
def test_how_gradients_are_put_into_buckets_is_no_cause_beside_other_traffic(
    tmp_path: Path, heavy: bool
) -> None:
    """What another layout would save is calculated from transfers that another program makes slow."""
    for rank, writer in enumerate(ring(tmp_path, 3, buckets=1)):
        writer.sidecar["modules"][0]["parameters"] = [{"name": f"p{index}"} for index in range(4)]
        writer.sidecar["buckets"][0]["parameters"] = list(range(4))
        received = MEGABYTES * MB * (3 if heavy and rank == 1 else 1)
        writer.sidecar["interfaces"] = [{"name": "eth0", "addresses": [f"10.0.0.{rank + 1}/24"]}]
        writer.sidecar["traffic"] = {"eth0": {"sent": MEGABYTES * MB, "received": received}}
        writer.write(tmp_path)
    found = only(tmp_path)
    assert (found.kind, found.rank) == (("exposed_communication", 1) if heavy else ("single_bucket", None))


@pytest.mark.parametrize("lanes", [False, True])
def test_lanes_take_interfaces_of_their_own(lanes: bool, tmp_path: Path) -> None:
    """Gloo's own is asked for by the variable, and what it sends over another one is a mistake."""
    for rank, writer in enumerate(ring(tmp_path, 2)):
        names = ("eth0", "eth1")
        writer.sidecar["interfaces"] = [
            {"name": name, "addresses": [f"10.0.{place}.{rank + 1}/24"]} for place, name in enumerate(names)
        ]
        writer.sidecar["environment"] = {"GLOO_SOCKET_IFNAME": "eth1"}
        if lanes:
            shares = [{"interface": name, "mbit": 90.0, "share": 0.5} for name in names]
            writer.sidecar["groups"][0]["lanes"] = shares
        writer.write(tmp_path)
    assert ("wrong_interface" in {each.kind for each in findings(tmp_path)}) is not lanes
