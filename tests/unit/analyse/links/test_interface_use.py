"""Which interfaces a run uses, against those that it was to use."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.reported import findings
from support.wired import ring


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
