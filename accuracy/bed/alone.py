"""A rank of a script that `pyddpdiag run --nproc` starts as it starts a user's: `python -m bed.alone SPEC.json`."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from bed.jobs import Job
from bed.scripts import Script


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    job = Job(**spec["job"])
    torch.set_num_threads(job.threads)
    dist.init_process_group("gloo", timeout=timedelta(seconds=spec["timeout_s"]))
    Script(job, spec["fault"], int(os.environ["RANK"])).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
