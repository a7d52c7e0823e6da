"""A rank whose memory grows, and one that only fills a cache: what is left, and when it is used up."""

import sys
from pathlib import Path

from support.reported import findings
from train_support import ended

SCRIPT = """
import time
import psutil, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
STEPS = 200
some = int(0.03 * psutil.virtual_memory().available) // STEPS
kept = []
for step in range(STEPS):
    ddp(torch.randn(2, 8)).sum().backward()
    if dist.get_rank() == 1 or step < STEPS // 4:
        kept.append(bytearray(b"x") * some)
    time.sleep(0.05)
"""


def test_the_rank_whose_memory_grows_is_named(tmp_path: Path) -> None:
    """Rank 1 leaks, though nobody looks at its stack; rank 0 fills a cache."""
    (tmp_path / "job.py").write_text(SCRIPT, encoding="utf-8")
    run = ("run", "--trace", "run", "--no-lines", "--nproc", "2", "job.py")
    code, err = ended(sys.executable, "-m", "pyddpdiag", *run, cwd=tmp_path)
    assert code == 0, err
    (one,) = findings(tmp_path / "run", "memory_growth")
    assert one.rank == 1 and one.since_step is None
    per_step, free = one.evidence["bytes_per_step"], one.evidence["free_bytes"]
    assert isinstance(per_step, float) and isinstance(free, int)
    # It takes 3% of what was free in 200 steps.
    assert 0.5 < per_step * 200 / (0.03 * free) < 2.0
    assert "memory of rank 1 grows by" in one.message and "more steps" in one.message
