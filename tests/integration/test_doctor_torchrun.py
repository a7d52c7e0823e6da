"""`pyddpdiag doctor --mesh` under torchrun, which serves the store itself and gives every rank its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.commands import ran
from support.doctored import environment

LIMIT_S = 240
# Rank 1 ends at once; the others are the doctor. torchrun ends nobody for an exit code of 0.
ONE_LEAVES = """
import os, runpy, sys
if os.environ["RANK"] != "1":
    sys.argv = ["pyddpdiag", "doctor", *sys.argv[1:]]
    runpy.run_module("pyddpdiag", run_name="__main__")
"""


def torchrun(*words: object) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return ran(*launcher, *map(str, words), env=environment({"OMP_NUM_THREADS": "1"}), timeout_s=LIMIT_S)


def test_two_ranks_meet_in_the_agents_store_and_form_a_group() -> None:
    done = torchrun("-m", "pyddpdiag", "doctor", "--mesh", "--timeout", 120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 of 2 ranks came; a real Gloo group was formed" in done.stdout


def test_a_rank_that_ends_at_once_is_named(tmp_path: Path) -> None:
    script = tmp_path / "one_leaves.py"
    script.write_text(ONE_LEAVES, encoding="utf-8")
    done = torchrun(script, "--mesh", "--timeout", 12)
    assert done.returncode != 0
    assert "1 of 2 ranks came" in done.stdout and "missing: rank 1 never came." in done.stdout, done.stderr
