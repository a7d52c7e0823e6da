"""What `pyddpdiag run` costs a whole training: `python benchmarks/run_cost.py [TURNS] [WIDTH]`.

Whole runs of two ranks in turns: plain, plain again (how far two equal runs differ), torch's builtin hook, under `run`,
and under `run --no-lines`. Of the steps after the first 50: the processor time of rank 0's main thread and process per
step, and the median step, as ratios to the plain run of the same turn, with quartiles.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS, SKIPPED = 400, 50
WAYS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "plain again": (),
    "builtin hook": (),
    "run": ("run",),
    "run --no-lines": ("run", "--no-lines"),
}


def train(way: str, width: int) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(*(nn.Linear(width, width) for _ in range(4))))
    if way == "builtin hook":
        ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)  # type: ignore[no-untyped-call]
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-6, momentum=0.9)
    batch = torch.randn(64, width)
    steps = []
    for step in range(STEPS):
        if step == SKIPPED:
            thread, process = time.thread_time(), time.process_time()
        begin = time.perf_counter()
        optimizer.zero_grad()
        ddp(batch).square().mean().backward()
        optimizer.step()
        steps.append(time.perf_counter() - begin)
    count = STEPS - SKIPPED
    if dist.get_rank() == 0:
        found = {
            "thread": (time.thread_time() - thread) / count,
            "process": (time.process_time() - process) / count,
            "step": statistics.median(steps[SKIPPED:]),
        }
        Path(os.environ["RESULT"]).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def measure(way: str, width: int, folder: Path) -> dict[str, float]:
    """A whole run; milliseconds."""
    result = folder / "result.json"
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        __file__,
        "--rank",
        way,
    ]
    command = [sys.executable, *torchrun, str(width)]
    if WAYS[way]:
        trace = ["--trace", str(folder / f"trace-{time.monotonic_ns()}")]
        command = [sys.executable, "-m", "pyddpdiag", *WAYS[way], *trace, "--", *command]
    subprocess.run(
        command,
        env={**os.environ, "RESULT": str(result), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=300,
    )
    return {name: 1e3 * value for name, value in json.loads(result.read_text(encoding="utf-8")).items()}


def main(turns: int, width: int) -> None:
    """Prints the table."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            for way in WAYS:
                found[way].append(measure(way, width, Path(folder)))
    plain = found["plain"]
    middle = {name: statistics.median(one[name] for one in plain) for name in plain[0]}
    print(f"load {os.getloadavg()[0]:.0f}; plain: " + ", ".join(f"{k} {v:.2f} ms" for k, v in middle.items()))
    for way, runs in found.items():
        cells = []
        for name in middle:
            ratios = [one[name] / other[name] for one, other in zip(runs, plain, strict=True)]
            low, centre, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            cells.append(f"{name} {centre:.3f} [{low:.3f}, {high:.3f}]")
        print(f"{way:16}" + "  ".join(cells))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        train(sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, int(sys.argv[2]) if len(sys.argv) > 2 else 512)
