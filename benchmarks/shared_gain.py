"""How far off the report's model of what shared memory would save is: predicted and measured, as a table in Markdown.

Run: python benchmarks/shared_gain.py --times 2. Steps over Gloo and in shared memory take turns in the same ranks, each
with a recorder of its own; the prediction is made from the trace of those over Gloo alone.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from harness.ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.shared_gain import shared_gain_ms
from pyddpdiag.analyse.view import RunView
from pyddpdiag.paths.options import SharedMemory
from pyddpdiag.ranks.session import Session
from pyddpdiag.trace.run import open_run

STEPS, WARM_UP = 24, 4
WAYS: tuple[SharedMemory, ...] = ("off", "require")


@dataclass(frozen=True)
class Case:
    """Square layers without biases, and DDP's buckets of them."""

    layers: int
    width: int
    bucket_cap_mb: float
    ranks: int


CASES = [
    Case(layers, width, cap, ranks)
    for ranks in (2, 4)
    for layers, width, cap in (
        (4, 1024, 25),
        (4, 1024, 4.1),
        (4, 256, 25),
        (4, 256, 0.26),
        (3, 2048, 17),
        (12, 64, 0.02),
    )
]


@dataclass(frozen=True)
class Saved:
    """Milliseconds per step."""

    over_gloo: float
    in_shared_memory: float
    predicted: float

    @property
    def share(self) -> float:
        """Of what was saved, how much was predicted; NaN: nothing was saved."""
        saved = self.over_gloo - self.in_shared_memory
        return self.predicted / saved if saved > 0 else math.nan


def train(session: Session, folder: str, case: Case) -> None:
    """In a rank: both ways, step by step in turn."""
    del session
    inputs = torch.randn(2, case.width, generator=torch.Generator().manual_seed(1))
    trainings = []
    for way in WAYS:
        torch.manual_seed(0)
        layers = [nn.Linear(case.width, case.width, bias=False) for _ in range(case.layers)]
        ddp = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=case.bucket_cap_mb)
        recorder = pyddpdiag.Recorder(Path(folder, way), capacity_mb=4)
        recorder.attach(ddp, shared_memory=way)
        trainings.append((ddp, recorder))
    for _ in range(WARM_UP + STEPS):
        for ddp, _ in trainings:
            ddp.zero_grad(set_to_none=False)
            ddp(inputs).square().mean().backward()
    for _, recorder in trainings:
        recorder.close()


def look(folder: Path) -> RunView:
    """The trace of one way."""
    intake = Intake()
    return RunView(open_run(folder, visit=intake.take), intake)


def measure(case: Case) -> Saved:
    """One start of the case's ranks."""
    with tempfile.TemporaryDirectory() as folder:
        run(train, case.ranks, folder, case)
        gloo, shared = (look(Path(folder, way)) for way in WAYS)
    exposed = gloo.exposure.typical_ms
    predicted = shared_gain_ms(exposed, gloo.buckets)
    assert predicted is not None
    return Saved(exposed, shared.exposure.typical_ms, predicted)


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:.1f}" if value < 9.95 else f"{value:.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def row(case: Case, found: Sequence[Saved]) -> str:
    """The case's line of the table."""
    shares = ", ".join(f"{one.share:.2f}" for one in found)
    return (
        f"| {case.layers} of {case.width}, {case.bucket_cap_mb:g} | {case.ranks} "
        f"| {_range([one.over_gloo for one in found])} | {_range([one.in_shared_memory for one in found])} | {shares} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2, help="how often each case is measured")
    times = parser.parse_args(arguments).times
    print("| layers, `bucket_cap_mb` | ranks | over Gloo | in shared memory | predicted / measured saving |")
    print("|---|---|---|---|---|")
    shares: list[float] = []
    for case in CASES:
        found = [measure(case) for _ in range(times)]
        shares += [one.share for one in found]
        print(row(case, found), flush=True)
    known = [share for share in shares if not math.isnan(share)]
    if known:
        middle = statistics.median(known)
        print(f"\nFrom {min(known):.2f} to {max(known):.2f}, {middle:.2f} in the median.")


if __name__ == "__main__":
    main()
