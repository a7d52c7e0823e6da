"""What `pyddpdiag watch` takes: processor time of its looks at a run of 8 ranks that goes on.

Run: python3 dev.py bench benchmarks/bench_live.py
A writer adds the records of 50 steps per second to 8 traces; `watch` looks at them every 2 s, in its own process. A
round is the processor time of one look. Goal: 3% of one core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.row import Row
from support.bulk_writer import PER_STEP, write_bulk
from support.trace_writer import HEADER_BYTES

GOAL = 0.03
INTERVAL_S = 2.0
ROUNDS = 8
RANKS = 8
STEPS_PER_S = 50
TICKETS_AT = 256

# Prints, after each look, the processor time that it took, with what it printed.
PROGRAM = """
import io, json, sys, time
from pathlib import Path
from rich.console import Console
from pyddpdiag.live.watch import LiveView, display_for, watch
from pyddpdiag.report.screen import Screen
looks = int(sys.argv[2])
spent = []
begin = time.process_time()
def pause(seconds):
    global begin
    spent.append(time.process_time() - begin)
    if len(spent) > looks:
        raise KeyboardInterrupt
    print(json.dumps(seconds), flush=True)
    time.sleep(seconds)
    begin = time.process_time()
out = io.StringIO()
terminal = Screen(Console(file=out, force_terminal=True, width=110, height=40), True, "utf-8")
display = LiveView(terminal) if sys.argv[4] == "terminal" else display_for(out, as_json=sys.argv[4] == "json")
try:
    watch(Path(sys.argv[1]), display, interval_s=float(sys.argv[3]), pause=pause)
except KeyboardInterrupt:
    # The first look loads the modules.
    print(json.dumps({"spent": spent[1:], "last": out.getvalue()[-5000:]}))
"""


@dataclass
class Growing:
    """Traces whose count of tickets grows as if they were being written: what is behind it is there already."""

    folder: Path
    steps: int

    def show(self, steps: int) -> None:
        """Let the readers see so many steps."""
        for rank in range(RANKS):
            with (self.folder / f"rank_{rank}.ddptrace").open("r+b") as file:
                file.seek(TICKETS_AT)
                file.write((min(steps, self.steps) * PER_STEP).to_bytes(8, sys.byteorder))
                assert file.tell() < HEADER_BYTES


@pytest.mark.parametrize("output", ["terminal", "lines", "json"])
def test_watch(row: Row, tmp_path: Path, output: str) -> None:
    rounds = row.rounds(ROUNDS)
    steps = int(STEPS_PER_S * INTERVAL_S * (rounds + 4)) + 500
    write_bulk(tmp_path, ranks=RANKS, records=steps * RANKS * PER_STEP)
    run = Growing(tmp_path, steps)
    shown = 200
    run.show(shown)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(rounds), str(INTERVAL_S), output]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        lines = []
        begin = time.monotonic()
        for line in process.stdout:
            lines.append(line)
            shown += int(STEPS_PER_S * INTERVAL_S)
            run.show(shown)
        took = time.monotonic() - begin
    measured = json.loads(lines[-1])
    spent = measured["spent"]
    row.report(
        "a look of watch",
        spent,
        ranks=RANKS,
        interval_s=INTERVAL_S,
        share_of_a_core=sum(spent) / (len(spent) * INTERVAL_S),
        seconds=took,
    )
    assert "Rank 7 is late" in measured["last"]
    assert not row.judges(ROUNDS) or sum(spent) / (len(spent) * INTERVAL_S) < GOAL
