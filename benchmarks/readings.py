"""What the recorder's small readings cost: `python benchmarks/readings.py`.

Each figure is the median of 60 rounds, with and without in turns, by the thread's own clock; those of fingerprints of
weights and of the watch over optimizers of 10. One process, which trains by itself.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.record.collector import CollectorWatch
from pyddpdiag.record.cpu_quota import CpuQuota
from pyddpdiag.record.evaluations import Evaluations
from pyddpdiag.record.interface_traffic import InterfaceTraffic
from pyddpdiag.record.reductions import ReductionWatch
from pyddpdiag.record.stepping import LOOK_INTERVAL

ROUNDS, LAYERS = 60, 200
WEIGHTS_INTERVAL = 16
LOOKS = 2  # of the watch over optimizers at all parameters, in a round


def main() -> None:
    """Prints a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        print(f"a container's limit: found in {_us(CpuQuota):.0f} us, read in {_us(CpuQuota().now):.1f} us")
        print(f"the bytes of all network interfaces: {_us(InterfaceTraffic().now):.0f} us")
        closed = pyddpdiag.Recorder(folder)
        closed.close()
        _reductions(closed)
        _evaluations()
        with pyddpdiag.Recorder(folder, overwrite=True) as recorder:
            _collections(recorder)
            _searches(recorder)
        for layers, width in ((40, 395), (160, 8), (5000, 8)):
            model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
            _weights_and_optimizers(model, f"{folder}/{layers}", torch.randn(16, width))
        dist.destroy_process_group()


def _collections(recorder: pyddpdiag.Recorder) -> None:
    watched, plain = [], []
    for _ in range(ROUNDS):
        watch = CollectorWatch(recorder.core)
        watched.append(_us(lambda: gc.collect(0), 50))
        watch.close()
        plain.append(_us(lambda: gc.collect(0), 50))
    print(
        f"a collection of garbage: {_difference(watched, plain):.2f} us more than {statistics.median(plain):.2f} us"
    )


def _reductions(recorder: pyddpdiag.Recorder) -> None:
    value, watched, plain = torch.ones(4), [], []
    for _ in range(ROUNDS):
        plain.append(_us(lambda: dist.all_reduce(value), 200))
        watch = ReductionWatch(recorder.core, lambda: None)
        watched.append(_us(lambda: dist.all_reduce(value), 200))
        watch.close()
    print(
        f"a reduction of the script's own: {_difference(watched, plain):.1f} us more than "
        f"{statistics.median(plain):.1f} us"
    )


def _evaluations() -> None:
    """Batches of small pictures, of which one pass is watched as under `pyddpdiag run`."""
    data = TensorDataset(torch.randn(64 * ROUNDS, 3, 32, 32), torch.arange(64 * ROUNDS))
    seen, took, loaded = Evaluations(lambda: None), [], []
    batches = iter(DataLoader(data, batch_size=64))
    for _ in range(ROUNDS):
        batch: list[object] = []
        loaded.append(_us(lambda: batch.append(next(batches)), 1))  # noqa: B023
        took.append(_us(lambda: seen.took(batches, batch[0], 1), 1))  # noqa: B023
    print(
        f"a batch of an evaluation: {statistics.median(took):.0f} us beside {statistics.median(loaded):.0f} us "
        "that loading it takes"
    )


def _searches(recorder: pyddpdiag.Recorder) -> None:
    """Passes of modules that search for unused parameters, of which one was not known to when it was attached."""
    counted, other = (
        DistributedDataParallel(
            nn.Sequential(*(nn.Linear(8, 8) for _ in range(LAYERS))), find_unused_parameters=True
        )
        for _ in range(2)
    )
    recorder.attach(counted)
    other.find_unused_parameters = False
    recorder.attach(other)
    other.find_unused_parameters = True
    batch = torch.randn(4, 8)
    times: dict[DistributedDataParallel, list[float]] = {counted: [], other: []}
    for number in range(ROUNDS):
        for ddp in (counted, other) if number % 2 else (other, counted):
            times[ddp].append(_us(lambda ddp=ddp: ddp(batch).sum().backward(), 4))  # type: ignore[misc]
    print(
        f"a pass that counts which of {2 * LAYERS} parameters are used: {_difference(*times.values()):.0f} us more "
        f"than {statistics.median(times[other]):.0f} us"
    )


def _weights_and_optimizers(model: nn.Module, folder: str, batch: torch.Tensor) -> None:
    parameters = list(model.parameters())
    amount = sum(one.nbytes for one in parameters) / 1e6
    marks = _us(lambda: _native.weight_marks(parameters), 10) / WEIGHTS_INTERVAL
    ddp = DistributedDataParallel(model)
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-9)
        ddp(batch).sum().backward()
        whole = _us(lambda: ddp(batch).sum().backward(), 10)
        watched, plain = [], []
        for _ in range(10):
            watched.append(_us(optimizer.step, LOOKS * LOOK_INTERVAL))
            recorder.pause()
            plain.append(_us(optimizer.step, LOOKS * LOOK_INTERVAL))
            recorder.resume()
    print(
        f"{amount:.1f} MB in {len(parameters)} parameters, forward and backward {whole:.0f} us: weights {marks:.1f} us "
        f"per pass, optimizer {_difference(watched, plain):.1f} us per step"
    )


def _difference(one: list[float], other: list[float]) -> float:
    return statistics.median(a - b for a, b in zip(one, other, strict=True))


def _us(run: Callable[[], object], times: int = ROUNDS) -> float:
    begin = time.thread_time_ns()
    for _ in range(times):
        run()
    return (time.thread_time_ns() - begin) / times / 1000


if __name__ == "__main__":
    main()
