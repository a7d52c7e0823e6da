"""Whether a trial of cures names what is faster: what it named, and the same measured again apart, in Markdown.

Run: PYTHONPATH=tests python benchmarks/trials_again.py --trials 40. Each trial is a training of its own, with the
defaults. Then today's setting and the best that it named take turns in two new modules, in other processes, and their
ratio is taken again. A trial that names nothing keeps today's setting, and cannot be wrong.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from harness.layouts import MODELS, model_of
from harness.ranks import run
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.bench.intervals import Estimate, ratio_in_pairs
from pyddpdiag.cures.options import from_options
from pyddpdiag.model.tried import TODAY, Tried
from pyddpdiag.ranks.session import Session
from pyddpdiag.trace.sidecar import read_sidecar

BATCHES = (0.1, 1.0, 4.0)
"""Of the models' own batch, whose step is half communication: a little compute, as much, and much more."""
PAIRS, BLOCK_S, FEWEST = 10, 0.3, 6
ALLOWED = 1.02


@dataclass(frozen=True)
class Again:
    """One trial: what it named, its ratio to today's step there (with the interval that it stated), and measured again;
    None: it named nothing."""

    model: str
    batch: float
    best: str
    ratio: float
    stated: tuple[float, float]
    again: Estimate | None
    seconds: float

    @property
    def is_true(self) -> bool:
        """Whether the interval holds what was measured again."""
        return self.again is not None and self.stated[0] <= self.again.median <= self.stated[1]


def _training(name: str, batch: float, **arguments: object) -> tuple[DistributedDataParallel, torch.Tensor]:
    module, inputs = model_of(name)
    module(inputs)  # without DDP: a lazy layer needs its size
    count = max(2, round(batch * len(inputs)))
    inputs = inputs.repeat(-(-count // len(inputs)), *(1 for _ in inputs.shape[1:]))[:count]
    return DistributedDataParallel(module, **arguments), inputs  # type: ignore[arg-type]


def _step(ddp: DistributedDataParallel, inputs: torch.Tensor) -> None:
    ddp.zero_grad(set_to_none=False)
    ddp(inputs).float().square().mean().backward()


def _tried(session: Session, folder: str, name: str, batch: float, minutes: float) -> Tried:
    """In a rank: trains until the trial is over."""
    ddp, inputs = _training(name, batch)
    recorder = pyddpdiag.Recorder(folder, capacity_mb=4)
    recorder.attach(ddp, trial=pyddpdiag.Trial(minutes=minutes))
    over = torch.zeros(1)
    while not over:
        for _ in range(10):
            _step(ddp, inputs)
        if session.place.rank == 0:
            trial = read_sidecar(recorder.path.with_suffix(".json"))[0].trial
            over[0] = trial is not None and trial.state != "running"
        dist.broadcast(over, 0)
    recorder.close()
    trial = read_sidecar(recorder.path.with_suffix(".json"))[0].trial
    assert trial is not None
    return trial


def _apart(session: Session, folder: str, name: str, batch: float, options: Mapping[str, str]) -> list[float]:
    """In a rank: the ratio of each pair of blocks, by the slowest rank's median step."""
    del session
    cures = from_options(options)
    ways = []
    for which, arguments, path in (("today", {}, {}), ("best", cures.ddp_arguments, cures.path)):
        ddp, inputs = _training(name, batch, **arguments)
        recorder = pyddpdiag.Recorder(Path(folder, which), capacity_mb=4)
        recorder.attach(ddp, **path)
        ways.append((ddp, inputs))
        for _ in range(5):
            _step(ddp, inputs)
    begin = time.perf_counter()
    _step(*ways[0])
    steps = torch.tensor([max(FEWEST, BLOCK_S / (time.perf_counter() - begin))])
    dist.broadcast(steps, 0)
    ratios = []
    for pair in range(PAIRS):
        middle = {}
        for which in (0, 1) if pair % 2 else (1, 0):
            taken = []
            for _ in range(int(steps)):
                begin = time.perf_counter()
                _step(*ways[which])
                taken.append(time.perf_counter() - begin)
            slowest = torch.tensor([statistics.median(taken[1:])], dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            middle[which] = float(slowest)
        ratios.append(middle[1] / middle[0])
    return ratios


def measure(name: str, batch: float, minutes: float) -> Again:
    """One trial, and what it named again."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        trial: Tried = run(_tried, 2, f"{folder}/trial", name, batch, minutes)
        seconds = time.monotonic() - begin
        best = trial.best_cure
        if best is None or best.ratio is None or best.ratio_low is None or best.ratio_high is None:
            return Again(name, batch, TODAY, 1.0, (1.0, 1.0), None, seconds)
        ratios = run(_apart, 2, folder, name, batch, dict(best.options))
    again = ratio_in_pairs(ratios, [1.0] * len(ratios), 0.95)
    return Again(name, batch, best.name, best.ratio, (best.ratio_low, best.ratio_high), again, seconds)


def row(number: int, found: Again) -> str:
    """The trial's line of the table."""
    again = found.again
    shown = "-" if again is None else f"{again.median:.2f} ({again.low:.2f} to {again.high:.2f})"
    low, high = found.stated
    named = "nothing" if again is None else f"{found.best}, {found.ratio:.2f} ({low:.2f} to {high:.2f})"
    return f"| {number} | {found.model}, batch x {found.batch:g} | {named} | {shown} | {found.seconds:.0f} |"


def summary(found: Sequence[Again]) -> str:
    """How many named something, and how far the worst of them was off."""
    again = [each.again for each in found if each.again is not None]
    if not again:
        return f"None of {len(found)} trials named anything."
    slower = sum(each.median > ALLOWED for each in again)
    surely = sum(each.low > ALLOWED for each in again)
    return (
        f"{len(again)} of {len(found)} trials named a setting; measured again, it took "
        f"{max(each.median for each in again):.2f} of today's step at most; more than {ALLOWED} in {slower}, with the "
        f"whole interval in {surely}. The interval that the trial stated holds it "
        f"in {sum(one.is_true for one in found)}."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the trials and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="begin with this case")
    parser.add_argument("--minutes", type=float, default=0.5, help="of each trial")
    options = parser.parse_args(arguments)
    cases = [(name, batch) for batch in BATCHES for name in MODELS]
    print(
        "| trial | training | named, ratio to today's step (95%) | measured again (95%) | seconds |\n"
        "|---|---|---|---|---|"
    )
    found = []
    for number in range(options.first, options.first + options.trials):
        found.append(measure(*cases[number % len(cases)], options.minutes))
        print(row(number, found[-1]), flush=True)
    print(f"\n{summary(found)}")


if __name__ == "__main__":
    main()
