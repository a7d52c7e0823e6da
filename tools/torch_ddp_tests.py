"""Runs torch's own DDP tests plainly and with each way of registering our hook, and compares the outcomes.

Usage: torch_ddp_tests.py [--world-size N] [--only WORDS]. Exits with 1 if a test that passes plainly fails with a
hook, except for those in EXCEPTIONS.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "tests" / "torch_ddp" / "torchs_own.py"
WAYS = ("plain", "attach", "timed")
EXCEPTIONS: dict[str, str] = {}
"""Tests that cannot pass with a hook, and why."""


def outcomes(way: str, world_size: int, chosen: list[str]) -> dict[str, str]:
    """Each test's name, and whether it passed, failed or was skipped; `chosen` are pytest's own words for them."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
        command += [f"--junitxml={results}", "--timeout=600", f"--rootdir={folder}", "-o", "filterwarnings="]
        environment = {
            **os.environ,
            "BACKEND": "gloo",
            "WORLD_SIZE": str(world_size),
            "TEMP_DIR": folder,
            "PYDDPDIAG_WAY": way,
            "PYTHONPATH": str(SUITE.parent),
            "OMP_NUM_THREADS": "1",
        }
        subprocess.run(command, cwd=folder, env=environment, check=False)
        found = {}
        for case in ElementTree.parse(results).iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = (
                "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            )
            found[case.attrib["name"]] = outcome
        return found


def main() -> int:
    """Runs them and prints what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--only", default="DistributedDataParallel or ddp")
    arguments = parser.parse_args()
    seen = {"plain": outcomes("plain", arguments.world_size, [str(SUITE), "-k", arguments.only])}
    plain = [name for name, outcome in seen["plain"].items() if outcome == "passed"]
    # Most need GPUs. What passes plainly is tried with the hooks.
    for way in WAYS[1:] if plain else ():
        seen[way] = outcomes(way, arguments.world_size, [f"{SUITE}::TestTorchsOwn::{name}" for name in plain])
    print(f"{arguments.world_size} ranks: {len(plain)} of {len(seen['plain'])} tests pass without a hook")
    unexpected = 0
    for way in list(seen)[1:]:
        lost = [name for name in plain if seen[way].get(name) != "passed"]
        print(f"  {way}: {len(plain) - len(lost)} of these pass")
        for name in lost:
            reason = EXCEPTIONS.get(name)
            unexpected += reason is None
            print(f"    {name}: {reason or 'NOT EXPECTED'}")
    return 1 if unexpected or not plain else 0


if __name__ == "__main__":
    sys.exit(main())
