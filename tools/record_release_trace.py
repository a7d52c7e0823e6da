"""Records the small training that is kept as the trace of a release, into tests/data/traces/<format>.

Two ranks, 12 steps of three linear layers in buckets of 10 KiB, one phase. The sidecars lose what names the machine.
`tests/unit/trace/test_released_formats.py` reads it from then on.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

TRACES = Path(__file__).resolve().parents[1] / "tests" / "data" / "traces"
STEPS = 12


def train(rank: int, folder: str, meeting: str) -> None:
    """One of the two ranks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    ddp = DistributedDataParallel(net, bucket_cap_mb=10 / 1024)
    recorder = pyddpdiag.Recorder(folder, capacity_mb=0.0625)
    recorder.attach(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in recorder.steps(range(STEPS)):
        optimizer.zero_grad()
        ddp(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        if step == STEPS // 2:
            with recorder.phase("checkpoint"):
                dist.barrier()
    time.sleep(1.2)  # connections are read twice a second
    recorder.close()
    dist.destroy_process_group()


def without_the_machine(sidecar: Path) -> str:
    """Removes what names the machine from a sidecar; returns its trace format."""
    fields = json.loads(sidecar.read_text(encoding="utf-8"))
    fields["host"], fields["platform"] = "vm", "Linux-6.1.0-x86_64-with-glibc2.36"
    fields["interfaces"] = [one for one in fields["interfaces"] if one["name"] == "lo"]
    sidecar.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    return str(fields["build_config"]["trace_format"])


def main() -> None:
    """Record, and keep the folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        spawn(train, (str(folder), f"file://{place}/meet"), nprocs=2)  # type: ignore[no-untyped-call]
        written = {without_the_machine(sidecar) for sidecar in sorted(folder.glob("rank_*.json"))}
        target = TRACES / written.pop()
        target.mkdir(parents=True)
        for path in sorted(folder.iterdir()):
            (target / path.name).write_bytes(path.read_bytes())
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
