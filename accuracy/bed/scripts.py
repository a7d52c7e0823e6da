"""One rank of a training as people write it: loader, sampler, epochs, optimizer; nothing in it knows of a recorder.

It is watched as `pyddpdiag run` watches a rank. Its mistakes are those that `bed.mistakes` draws. What a mistake costs
is measured by a second set of ranks (`mode` "cost"): the training with it and without it, in turn, recorded by nobody.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from bed import models
from bed.jobs import Job
from bed.meeting import meet
from bed.protocol import ask, say

PAIRS = 2
EVALUATIONS = ("full evaluation", "evaluation of parts", "left in eval")


class Script:
    """A training of one rank.

    Args:
        job: what is trained.
        fault: its mistake; `name` "" for none.
        rank: of this process.
    """

    def __init__(self, job: Job, fault: dict[str, Any], rank: int) -> None:
        self.job = job
        self.fault = fault
        self.name = str(fault["name"])
        self.mine = fault.get("rank") in (None, rank)
        self.module = models.build(job.model, unused=False)
        x, y = models.sample(job.model, job.batch, torch.Generator().manual_seed(11))
        # As many batches for each rank as an epoch has, of a few samples that repeat.
        each, self.batch = len(x), len(x)
        count = each * job.epoch_steps * job.ranks
        noise = torch.Generator().manual_seed(12)
        order = torch.randint(each, (count,), generator=noise)
        x, y = x[order], y[torch.randint(each, (count,), generator=noise)]
        if x.is_floating_point():
            x += torch.rand(count, *[1] * (x.dim() - 1), generator=noise)
        self.data = TensorDataset(x, y)

    def _does(self, *names: str) -> bool:
        return self.name in names and self.mine

    def _wait_alone(self, name: str, trained_s: float = 0.0) -> None:
        """One rank does something that takes long, and the others wait for it in a barrier.

        After a training of some time it takes a share of that: on a busy machine, too, it is then worth a finding.
        """
        if self.name == name:
            if self.mine:
                seconds = (
                    float(self.fault.get("seconds", 0.0)) + float(self.fault.get("share", 0.0)) * trained_s
                )
                until = time.monotonic() + seconds
                a = torch.randn(96, 96)
                while time.monotonic() < until:
                    a = torch.tanh(a @ a)
                    time.sleep(0.001)
            dist.barrier()

    def train(self) -> None:
        """All of it."""
        self._wait_alone("slow start")
        job = self.job
        if self._does("unfrozen late"):
            next(self.module.parameters()).requires_grad_(False)
        ddp = DistributedDataParallel(
            self.module,
            bucket_cap_mb=job.cap_mb,
            broadcast_buffers=self.name == "buffers",
            find_unused_parameters=self.name == "needless search",
        )
        if self._does("rounding"):
            ddp.register_comm_hook(torch.Generator().manual_seed(dist.get_rank()), _rounding)
        model: Any = torch.compile(ddp, backend="aot_eager") if job.compiled else ddp
        rate = 0.01 if not self._does("another rate") else 0.005
        optimizer: torch.optim.Optimizer = (
            torch.optim.AdamW(ddp.parameters(), lr=rate / 10)
            if job.optimizer == "adamw"
            else torch.optim.SGD(ddp.parameters(), lr=rate, momentum=0.9 * (job.optimizer != "sgd plain"))
        )
        if self._does("other parameters"):
            optimizer = torch.optim.SGD(models.build(job.model, unused=False).parameters(), lr=rate)
        steps = job.epochs * job.epoch_steps // job.accumulate
        schedule = (
            torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps) if self.name == "schedule" else None
        )
        torch.autograd.set_detect_anomaly(self.name == "anomaly")
        sampler: DistributedSampler[Any] | None = None
        if self.name != "same data":
            sampler = DistributedSampler(self.data)
        torch.manual_seed(6)
        workers: dict[str, Any] = {}
        if self.name == "workers":
            workers = {"num_workers": 1, "worker_init_fn": self._read_index}
        loader = DataLoader(
            self.data,
            batch_size=self.batch,
            sampler=sampler,
            shuffle=sampler is None,
            drop_last=True,
            **workers,
        )
        begin = time.monotonic()
        for epoch in range(job.epochs):
            epoch_begin = time.monotonic()
            if sampler is not None and self.name != "no set_epoch":
                sampler.set_epoch(epoch)
            for number, (x, y) in enumerate(loader):
                if number == job.epoch_steps:
                    break
                self._change(epoch, number)
                last = number % job.accumulate == job.accumulate - 1
                loss = self._pass(ddp, model, x, y, last=last)
                if self.name == "by hand":
                    for parameter in self.module.parameters():
                        dist.all_reduce(parameter.grad)
                        parameter.grad /= job.ranks
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
                for _ in range(2 if schedule is not None else 0):
                    schedule.step()
                if self.name == "outputs":
                    values = torch.zeros(int(self.fault["values"]))
                    dist.all_gather([torch.empty_like(values) for _ in range(job.ranks)], values)
                if self.name == "garbage":
                    self._kept = [[each] for each in range(int(self.fault["objects"]))]
                    gc.collect()
                if self.name == "loss of each step":
                    for _ in range(int(self.fault["calls"])):
                        dist.all_reduce(loss)
                    loss.item()
            if self.name in EVALUATIONS:
                self._evaluate(ddp)
            if self.name == "checkpoint":
                torch.save(self.module.state_dict(), f"epoch-{epoch}.pt")
            self._wait_alone("alone between epochs", time.monotonic() - epoch_begin)
        self._wait_alone("slow end", time.monotonic() - begin)

    def _evaluate(self, ddp: DistributedDataParallel) -> None:
        in_full = self.name == "full evaluation"
        sampler = None if in_full else DistributedSampler(self.data, shuffle=False)
        ddp.eval()
        right = torch.zeros(())
        with torch.no_grad():
            for x, y in DataLoader(self.data, batch_size=self.batch, sampler=sampler):
                right += (ddp.module(x).argmax(1) == y).sum()
        if not in_full:
            dist.all_reduce(right)
        if self.name != "left in eval":
            ddp.train()

    def _read_index(self, _: int) -> None:
        time.sleep(float(self.fault["seconds"]))

    def _change(self, epoch: int, number: int) -> None:
        if epoch or number != 8:
            return
        if self._does("unfrozen late"):
            next(self.module.parameters()).requires_grad_(True)
        if self._does("changed weights"):
            with torch.no_grad():
                next(self.module.parameters()).mul_(1.5)

    def _pass(
        self, ddp: DistributedDataParallel, model: Any, x: torch.Tensor, y: torch.Tensor, *, last: bool
    ) -> torch.Tensor:
        apart = self.name == "always no_sync" or (
            self.job.accumulate > 1
            and not last
            and self.name not in ("no no_sync", "no_sync around backward")
        )
        late = self.name == "no_sync around backward" and not last
        with ddp.no_sync() if apart else nullcontext():
            out = ddp.module(x) if self.name == "past the wrapper" else model(x)
            loss = nn.functional.cross_entropy(out, y)
            with ddp.no_sync() if late else nullcontext():
                loss.backward()
        return loss.detach()


def _rounding(generator: torch.Generator, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages, and rounds what all ranks hold to 12 bits by chance: each rank by its own."""

    def rounded(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        average = future.value()
        unit = average.abs().max() / 2**11 + 1e-12
        return torch.floor(average / unit + torch.rand(average.shape, generator=generator)) * unit

    return default_hooks.allreduce_hook(dist.group.WORLD, bucket).then(rounded)


# DDP takes no annotations that are strings, as all of this file are.
_rounding.__annotations__.clear()


def main(spec: dict[str, Any], rank: int) -> None:
    job, fault = Job(**spec["job"]), spec["fault"]
    torch.set_num_threads(job.threads)
    watched = None
    if spec["mode"] == "judged":
        from pyddpdiag.integrations import unchanged
        from pyddpdiag.integrations.watched import Watched

        watched = Watched(spec["trace"], {})
        unchanged.watch(watched)
    meet(spec, rank, job.ranks)
    if watched is None:
        _measure(job, fault, rank)
    else:
        script = Script(job, fault, rank)
        ask("begins")
        script.train()
        ask("ends")
        assert watched.session is not None
        watched.session.close()
    dist.destroy_process_group()


def _measure(job: Job, fault: dict[str, Any], rank: int) -> None:
    # What communication costs a healthy training shows without any.
    without = {"name": "" if fault["name"] else "always no_sync"}
    if fault["name"] == "full evaluation":
        without = {"name": "evaluation of parts"}
    for block in range(2 * PAIRS + 1):
        on = block % 2 == 1  # the first one warms up
        dist.barrier()
        begin = time.monotonic()
        Script(job, fault if on else without, rank).train()
        dist.barrier()
        if block:
            say(tell="block", on=on, seconds=time.monotonic() - begin)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), int(sys.argv[2]))
