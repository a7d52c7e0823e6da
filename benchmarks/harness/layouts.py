"""Several bucket layouts of one model, trained in turns by the same ranks, each with a trace of its own.

Run as `python -m harness.layouts RANK SPEC.json`, this module is one such rank; see `train_layouts`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import torch
from support.links import NAMES, limit, on_hosts, switched_hosts
from support.ports import own_port
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.paths.options import Compress, SharedMemory
from pyddpdiag.workloads.networks import Transformer

MODELS = ("mlp", "transformer", "cnn", "deep", "wide", "lstm")
"""What `pyddpdiag plan` knows was learned from runs of the first three, but for one rule, which is from `deep`'s."""
BURST_KB = 32
"""A shaped link lets so much through at full speed: more would make small buckets faster than a real one does."""
TIMEOUT_S = 900
RECORDED = "recorded"
"""The trace of the layout that DDP has without a word from its user."""

HALF: Final = "bf16"
"""The trace of the same with gradients in bfloat16."""

SHARED: Final = "shared memory"
"""The trace of the same in shared memory."""


@dataclass(frozen=True)
class Turns:
    """What the ranks do.

    Attributes:
        model: one of `MODELS`.
        ranks: how many.
        caps_mb: DDP's `bucket_cap_mb`, beside the layout without one.
        rounds: so often each layout has its turn.
        steps: of a turn.
        cores: by rank, the core that it shares with no other rank or with others; none: as the system likes.
        half: whether gradients in 16 bits (`HALF`) take their turn, too.
        shared: whether averaging in shared memory (`SHARED`) does.
    """

    model: str
    ranks: int
    caps_mb: tuple[float, ...]
    rounds: int = 5
    steps: int = 12
    cores: tuple[int, ...] = ()
    half: bool = False
    shared: bool = False


def train_layouts(turns: Turns, folder: Path, mbit: int | None) -> None:
    """One trace in `folder` for each layout, named by its cap or `RECORDED`.

    Args:
        turns: what the ranks do.
        folder: empty.
        mbit: of each host's link, with a host for each rank; None: all ranks meet over loopback.
    """
    spec = folder / "turns.json"
    port = own_port()
    address, interface = ("127.0.0.1", "lo") if mbit is None else ("10.77.0.1", NAMES[0])
    orders = {"turns": asdict(turns), "url": f"tcp://{address}:{port}", "interface": interface}
    spec.write_text(json.dumps(orders), encoding="utf-8")
    commands = [
        [sys.executable, "-m", "harness.layouts", str(rank), str(spec)] for rank in range(turns.ranks)
    ]
    if mbit is None:
        _here(commands, folder)
        return
    with switched_hosts(turns.ranks) as hosts:
        for host in hosts:
            limit(host, NAMES[0], mbit, BURST_KB)
        for rank, (code, _, errors) in enumerate(on_hosts(hosts, commands, folder, TIMEOUT_S)):
            if code != 0:
                raise RuntimeError(f"rank {rank} ended with {code}:\n{errors}")


def _here(commands: Sequence[Sequence[str]], folder: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    started = [subprocess.Popen(command, cwd=folder, env=variables) for command in commands]
    until = time.monotonic() + TIMEOUT_S
    try:
        # All at once: where one has failed, the others wait for it.
        while None in (ends := [process.poll() for process in started]) and not any(ends):
            if time.monotonic() > until:
                raise TimeoutError(f"the ranks have not ended after {TIMEOUT_S} s")
            time.sleep(0.05)
        for rank, end in enumerate(ends):
            if end:
                raise RuntimeError(f"rank {rank} ended with {end}")
    finally:
        for process in started:
            process.kill()
            process.wait()


class Recurrent(nn.Module):
    """Two layers, whose gradients are ready when all steps in time are done, and what is made of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(384, 384, num_layers=2, batch_first=True)
        self.scores = nn.Linear(384, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, steps, 384) to (n, 1000)."""
        scores: torch.Tensor = self.scores(self.layers(x)[0][:, -1])
        return scores


def model_of(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A model with parameters of many sizes, and a batch of input that takes some 20 ms."""
    torch.manual_seed(0)
    if name == "mlp":
        widths = (256, 512, 1024, 1024, 512, 1024, 256)
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers), torch.randn(96, 256)
    if name == "transformer":
        return Transformer(96, 64, width=256, layers=3), torch.randint(0, 96, (4, 64))
    if name == "deep":
        return nn.Sequential(
            *(layer for _ in range(24) for layer in (nn.Linear(320, 320), nn.ReLU()))
        ), torch.randn(96, 320)
    if name == "wide":
        return Transformer(512, 48, width=384, layers=2), torch.randint(0, 512, (4, 48))
    if name == "lstm":
        return Recurrent(), torch.randn(8, 12, 384)
    channels = (3, 32, 64, 128, 256, 256, 384)
    layers = [
        layer
        for place, (a, b) in enumerate(pairwise(channels))
        for layer in (nn.Conv2d(a, b, 3, padding=1, stride=1 + (0 < place < 4)), nn.BatchNorm2d(b), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(100)), torch.randn(8, 3, 32, 32)


def _rank(rank: int, spec: Path) -> None:
    orders = json.loads(spec.read_text(encoding="utf-8"))
    turns = Turns(**{name: tuple(v) if isinstance(v, list) else v for name, v in orders["turns"].items()})
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = orders["interface"]
    if turns.cores:
        os.sched_setaffinity(0, {turns.cores[rank]})
    dist.init_process_group("gloo", init_method=orders["url"], rank=rank, world_size=turns.ranks)
    trainings = []
    settings: list[tuple[str, float | None, Compress | None, SharedMemory]] = [(RECORDED, None, None, "off")]
    settings += [(f"{cap:g}", cap, None, "off") for cap in turns.caps_mb]
    settings += [(HALF, None, HALF, "off")] if turns.half else []
    settings += [(SHARED, None, None, "require")] if turns.shared else []
    for name, cap, compress, shared in settings:
        model, batch = model_of(turns.model)
        model(batch)  # without DDP: a lazy layer needs its size
        ddp = (
            DistributedDataParallel(model)
            if cap is None
            else DistributedDataParallel(model, bucket_cap_mb=cap)
        )
        recorder = pyddpdiag.Recorder(spec.parent / name, capacity_mb=4)
        recorder.attach(ddp, compress=compress, shared_memory=shared)
        trainings.append((ddp, batch, recorder))
    for _ in range(turns.rounds):
        for ddp, batch, _ in trainings:
            for _ in range(turns.steps):
                ddp.zero_grad(set_to_none=False)
                ddp(batch).float().square().mean().backward()
    for _, _, recorder in trainings:
        recorder.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(int(sys.argv[1]), Path(sys.argv[2]))
