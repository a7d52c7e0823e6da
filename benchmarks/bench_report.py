"""Time and memory of `pyddpdiag report` on 1 million records of 8 ranks, in a process of its own.

Run: python3 dev.py bench benchmarks/bench_report.py
Goals: under 3 s from the start of the process to its end, under 1 GB at its peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.bulk_writer import write_bulk

ROOT = Path(__file__).parents[1]

GOAL_S = 3.0
GOAL_BYTES = 10**9

# Runs the command and then tells, on the last line of standard error, how much memory it took at most.
PROGRAM = """
import json, sys
from pyddpdiag.cli import main
code = main(sys.argv[1:])
if sys.platform == "win32":
    import psutil
    peak = psutil.Process().memory_info().peak_wset
elif sys.platform == "linux":
    # Not getrusage: what it tells begins with the size of the process that started this one.
    with open("/proc/self/status") as status:
        [peak] = [1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM")]
else:
    import resource
    # In bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"code": code, "peak_bytes": peak}), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A million records of 8 ranks; the last rank is 5 ms late in every step."""
    path = tmp_path_factory.mktemp("bulk")
    assert write_bulk(path) > 999_000
    return path


def report(folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Run the command; what it says of itself, and its standard output."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "report", str(folder), *options],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        env=environment,
    )
    return json.loads(done.stderr.splitlines()[-1]), done.stdout


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_report_of_a_million_records(benchmark: Any, folder: Path, options: tuple[str, ...]) -> None:
    told, output = benchmark.pedantic(report, args=(folder, *options), rounds=5, warmup_rounds=1)
    benchmark.extra_info["peak_bytes"] = told["peak_bytes"]
    benchmark.extra_info["records"] = 999_936
    assert told["code"] == 1
    assert "ank 7 is late" in output
    assert told["peak_bytes"] < GOAL_BYTES
    # The best round tells of the program, the others of what else the machine did.
    assert benchmark.stats.stats.min < GOAL_S
