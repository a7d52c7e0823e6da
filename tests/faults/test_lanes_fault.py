"""Buckets over two links at once: faster than either, and one clear error where one link goes down."""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from threading import Thread

import pytest
from support.links import NAMES, on_hosts, two_hosts

from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.run import open_run

pytestmark = pytest.mark.usefixtures("links")

FIRST, SECOND = NAMES
MIB = 2**20


def test_two_links_carry_a_bucket_faster_than_the_better_one_alone(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    ways = {
        "first": {"interfaces": FIRST},
        "second": {"interfaces": SECOND},
        "lanes": {"interfaces": FIRST, "lanes": list(NAMES)},
    }
    orders = {"ways": ways, "sizes": [MIB], "rounds": 5, "bytes": 0, "first": 60, "folder": str(tmp_path)}
    spec.write_text(json.dumps(orders), encoding="utf-8")
    commands = [
        [sys.executable, "-m", "support.lanes_job", str(rank), "2", "tcp://10.77.0.1:29521", str(spec)]
        for rank in range(2)
    ]
    with two_hosts((40, 60)) as hosts:
        ends = on_hosts(hosts, commands, tmp_path, 300)
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    seconds = {way: median(times[str(MIB)]) for way, times in json.loads(ends[0][1]).items()}
    # Both together carry 1.67 times what the better one does.
    assert seconds["lanes"] < 0.8 * min(seconds["first"], seconds["second"]), seconds
    shares = [
        tuple(lane.share for lane in group.lanes)
        for rank in open_run(tmp_path / "trace").ranks
        for group in rank.sidecar.groups.values()
        if group.lanes
    ]
    assert len(shares) == 2 and shares[0] == shares[1], shares
    first, second = shares[0]
    assert (
        first is not None
        and second is not None
        and 0.25 < first < 0.55
        and first + second == pytest.approx(1)
    )
    kinds = {finding.kind for finding in load_report(tmp_path / "trace").verdict.findings}
    assert not kinds & {"wrong_interface", "interface_order", "packet_loss"}, kinds


TRIES = """
import json, sys, torch, torch.distributed as dist
from pyddpdiag import _native
rank, turns, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
store = dist.TCPStore("10.77.0.1", 29523, 2, is_master=rank == 0)
backends = []
for place, name in enumerate(names):
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(interface=name)]
    backend = dist.ProcessGroupGloo(dist.PrefixStore(str(place), store), rank, 2, options)
    backends.append(_native.OwnBackend(backend))
# Wrong: as if both carried 160 Mbit/s.
lanes = _native.Lanes(names, backends, [(0, 50_000)] * 2, True)
buffer = torch.ones(2**18)
parts = _native.LaneParts(buffer, lanes)
for _ in range(turns):
    parts.begin(buffer).wait()
store.set(f"done/{rank}", "")
store.wait([f"done/{each}" for each in range(2)])
print(json.dumps(lanes.ends()))
# Joins Gloo's threads, as destroy_process_group does: one that lets go of a tensor of Python's takes the GIL, and where
# the interpreter ends meanwhile, torch aborts.
del backend
backends.clear()
"""


@pytest.mark.parametrize("names", [(FIRST, SECOND), (FIRST, FIRST)])
def test_ranks_mend_a_division_that_was_measured_wrongly_and_drop_one_that_does_not_pay(
    names: tuple[str, str], tmp_path: Path
) -> None:
    # A trial and what comes after it, twice.
    commands = [[sys.executable, "-c", TRIES, str(rank), "62", *names] for rank in range(2)]
    with two_hosts((40, 160)) as hosts:
        ends = on_hosts(hosts, commands, tmp_path, 400)
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    first, whole = json.loads(ends[0][1])
    assert json.loads(ends[1][1]) == [first, whole], str(ends)
    if names[0] != names[1]:
        assert 0.1 < first / whole < 0.35, first / whole
    else:
        # One link of 40 Mbit/s carries no more by two connections.
        assert first in (0, whole), first / whole


BREAKS = """
import os, sys, torch, pyddpdiag
import torch.distributed as dist
from datetime import timedelta
from torch.nn.parallel import DistributedDataParallel
rank, folder, first, second = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
os.environ["GLOO_SOCKET_IFNAME"] = first
dist.init_process_group("gloo", init_method="tcp://10.77.0.1:29522", rank=rank, world_size=2,
                        timeout=timedelta(seconds=10))
ddp = DistributedDataParallel(torch.nn.Linear(1024, 1024))
recorder = pyddpdiag.Recorder(folder)
recorder.attach(ddp, lanes=[f"{first}=100", f"{second}=100"])
for step in range(100000):
    ddp.zero_grad()
    loss = ddp(torch.ones(4, 1024)).mean()
    try:
        loss.backward()
    except RuntimeError as error:
        print(error, flush=True)
        sys.exit(7)
    if rank == 0 and step == 2:
        open(folder + "/trains", "w").close()
"""


def test_a_link_that_goes_down_is_one_error_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    commands = [[sys.executable, "-c", BREAKS, str(rank), str(folder), FIRST, SECOND] for rank in range(2)]

    with two_hosts((100, 100)) as hosts:

        def cut() -> None:
            until = time.monotonic() + 240
            while not (folder / "trains").exists() and time.monotonic() < until:
                time.sleep(0.05)
            command = ["ip", "-n", hosts[1], "link", "set", SECOND, "down"]
            subprocess.run(command, check=True, timeout=30)

        cutter = Thread(target=cut)
        cutter.start()
        try:
            ends = on_hosts(hosts, commands, tmp_path, 400)
        finally:
            cutter.join()
    assert [code for code, _, _ in ends] == [7, 7], str(ends)
    for rank, (_, said, _) in enumerate(ends):
        # One rank may be told by the other's end, on the lane that still stands.
        assert "of 2 (interface " in said and f"reached rank {rank}" in said, str(ends)
    assert any(f"lane 2 of 2 (interface {SECOND})" in said for _, said, _ in ends), str(ends)
