"""One rank of a run: `python -m bed.rank SPEC.json RANK`; the runner leads it by lines of JSON.

A *tell* reports, an *ask* waits for a line in reply. First comes the run that is judged: an ordinary training from its
first step on, recorded, the fault on. Then, with the recorder closed, short blocks with and without the fault take
turns: their times say what the fault truly costs.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from bed import models
from bed.inject import Injection
from bed.jobs import Job
from bed.meeting import meet
from bed.protocol import ask, say
from pyddpdiag.paths.averaging import HookKind, from_label

CALIBRATION = 8
# Pairs of blocks, and steps of a block: briefly for the tests, and fewer where each takes long.
BLOCKS, BRIEF_BLOCKS = 3, 1
BLOCK_STEPS, FEW_STEPS = 12, 6
LONG_S = 0.08
JUDGED_S = 4.0
LEAST, MOST = 40, 120
# Where a step takes longer than this, fewer must do.
SLOW_S = 0.5
FEW = 20


class Training:
    """The loop of one rank."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job = job
        self.rank = rank
        self.module = models.build(job.model, unused=job.unused)
        self.batches = [
            models.sample(job.model, job.batch, torch.Generator().manual_seed(rank * 8 + i)) for i in range(4)
        ]

    def wrap(self, cap_mb: float, group: dist.ProcessGroup | None = None) -> DistributedDataParallel:
        """The network in DDP."""
        return DistributedDataParallel(
            self.module,
            bucket_cap_mb=cap_mb,
            process_group=group,
            find_unused_parameters=self.job.unused,
        )

    def step(
        self, ddp: DistributedDataParallel, batch: Any, *, sync: bool = True, scale: float = 1.0
    ) -> None:
        """Forward, backward, and the optimizer's step if gradients were synchronised."""
        x, y = batch
        with nullcontext() if sync else ddp.no_sync():
            (nn.functional.cross_entropy(ddp(x), y) * scale).backward()
        if sync:
            with torch.no_grad():
                for parameter in self.module.parameters():
                    if parameter.grad is not None:
                        parameter.add_(parameter.grad, alpha=-1e-3)
            ddp.zero_grad(set_to_none=True)

    def evaluate(self, seconds: float) -> None:
        """Forward passes, for about that long."""
        until = time.monotonic() + seconds
        with torch.no_grad():
            while time.monotonic() < until:
                self.module(self.batches[0][0])

    def loader(self, count: int, injection: Injection, wait_s: float) -> Iterator[Any]:
        """`count` batches, each after `wait_s` and what the fault adds."""
        for i in range(count):
            if wait_s:
                time.sleep(wait_s)
            injection.load()
            yield self.batches[i % len(self.batches)]

    def run(
        self,
        ddp: DistributedDataParallel,
        injection: Injection,
        step_s: float,
        count: int,
        steps: Callable[[Iterator[Any]], Any] = lambda loader: loader,
        *,
        sync: bool = True,
    ) -> None:
        """`count` steps with the fault as it is switched."""
        job = self.job
        injection.count = count
        for i, batch in enumerate(
            steps(self.loader(injection.batches(count), injection, job.loader_share * step_s))
        ):
            if injection.begin(i):
                continue
            self.step(
                ddp, batch, sync=sync and i % job.accumulate == job.accumulate - 1, scale=injection.scale(i)
            )
            injection.end(i)
            if job.evaluate_every and i % job.evaluate_every == job.evaluate_every // 2:
                self.evaluate(job.evaluate_steps * step_s)


def calibrate(training: Training) -> float:
    """Seconds of a step without recorder and fault, the same on all ranks."""
    ddp = training.wrap(training.job.cap_mb)
    times = []
    for i in range(CALIBRATION):
        begin = time.monotonic()
        training.step(ddp, training.batches[i % 4])
        times.append(time.monotonic() - begin)
    value = torch.tensor([statistics.median(times[2:])])
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value)


def length(step_s: float, spec: dict[str, Any]) -> int:
    """Steps of the judged run: some seconds, and enough of them to be judged."""
    fault = spec["fault"]
    expected = step_s * max(1 + float(fault.get("share", 0.5)), float(fault.get("divide", 1.0)))
    # What happens now and then must happen some times.
    least = max(FEW, 4 * int(fault.get("every", 1))) if expected > SLOW_S else LEAST
    if fault["name"] == "flap":
        # A link that is up again after a moment has to go down more than once.
        least = max(least, math.ceil(3 * float(fault["each_s"]) / expected))
    steps = LEAST if spec["brief"] else max(least, min(MOST, round(JUDGED_S / expected)))
    return steps * (2 if spec["job"]["accumulate"] > 1 else 1)


def main(spec: dict[str, Any], rank: int) -> None:
    job = Job(**spec["job"])
    fault = spec["fault"]
    torch.set_num_threads(job.threads)
    if "interfaces" in fault:
        os.environ["GLOO_SOCKET_IFNAME"] = fault["interfaces"][rank]
    meet(spec, rank, job.ranks)
    training = Training(job, rank)
    step_s = calibrate(training)
    injection = Injection(fault, rank, step_s, job.threads, lambda event: say(tell=event))
    ask("calibrated", step_s=step_s)
    injection.switch(True)
    recorder = pyddpdiag.Recorder(spec["trace"])
    ddp = training.wrap(fault.get("cap_mb", job.cap_mb))
    way = from_label(job.hook)
    assert way is not None
    if way.hook is HookKind.TIMED:
        ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
    else:
        recorder.attach(ddp, **way.path)
    ask("begins")
    training.run(ddp, injection, step_s, length(step_s, spec), recorder.steps)
    if fault["name"] in ("skip", "fewer") and fault["rank"] == rank:
        # As scripts do: whoever is done closes its trace and waits for the others, who wait for its all-reduce.
        if fault["name"] == "fewer":
            recorder.close()
        say(tell="stalled")
        dist.barrier()
    ask("ends")
    recorder.close()
    # The report is made meanwhile; it says whether the cost is needed.
    if ask("closed") == "measure":
        measure_cost(training, injection, step_s, spec)
    dist.destroy_process_group()


def measure_cost(
    training: Training,
    injection: Injection,
    step_s: float,
    spec: dict[str, Any],
) -> None:
    """Blocks with and without the fault; without one, blocks with and without all-reduces."""
    fault = spec["fault"]
    hook = default_hooks.bf16_compress_hook if "bf16" in training.job.hook else default_hooks.allreduce_hook
    # A module of its own: that of the judged run belongs to a recorder, which is closed.
    faulty = sound = training.wrap(fault.get("cap_mb", training.job.cap_mb))
    faulty.register_comm_hook(None, hook)
    if "cap_mb" in fault or "interfaces" in fault:
        group = None
        if "interfaces" in fault:
            # Gloo reads it again for every group.
            os.environ["GLOO_SOCKET_IFNAME"] = fault["right"]
            group = dist.new_group()
        sound = training.wrap(training.job.cap_mb, group)
        sound.register_comm_hook(group, hook)
    every = int(fault.get("every", 1))
    usual = FEW_STEPS if spec["brief"] or step_s > LONG_S else BLOCK_STEPS
    if step_s * float(fault.get("divide", 1.0)) > SLOW_S:
        usual = FEW_STEPS // 2
    steps = max(usual, 2 * every) // every * every
    if injection.name == "flap":
        # The link goes down at the end of each period, and the first one begins with the block.
        steps = max(steps, math.ceil(float(fault["each_s"]) / step_s))
    for block in range(2 * (BRIEF_BLOCKS if spec["brief"] else BLOCKS)):
        on = block % 2 == 0
        injection.switch(on)
        ask("on" if on else "off")
        dist.barrier()
        if block < 2:
            training.run(faulty if on else sound, injection, step_s, 2)
        begin = time.monotonic()
        training.run(
            faulty if on else sound,
            injection,
            step_s,
            steps,
            sync=on or injection.name not in ("", "huge bucket"),
        )
        dist.barrier()
        say(tell="block", on=on, seconds=(time.monotonic() - begin) / steps)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), int(sys.argv[2]))
