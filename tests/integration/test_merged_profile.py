"""A trace of torch.profiler and ours of the same run on one time line: both saw the same all-reduces."""

import json
from pathlib import Path

import numpy as np
import torch
from support.hooked import backward
from support.models import branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import pyddpdiag
from pyddpdiag.cli import main
from pyddpdiag.export.merge import _APART

STEPS = 6


def _job(rank: int, _: int, folder: str) -> None:
    ddp = DistributedDataParallel(branches(torch.float32))
    with pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1) as recorder:
        recorder.attach(ddp)
        steps = recorder.steps(range(STEPS))
        for step in steps:
            if step == 2:
                break
            backward(ddp, rank, step)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for step in recorder.steps(range(STEPS)):
                backward(ddp, rank, step)
    profiler.export_chrome_trace(f"{folder}/profile_{rank}.json")


def spans(events: list[dict[str, float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Begin and end of each, in order."""
    return np.sort(np.array([[event["ts"], event["ts"] + event["dur"]] for event in events]), axis=0)


def test_both_saw_the_same_all_reduces(tmp_path: Path) -> None:
    run_ranks(_job, 2, tmp_path, str(tmp_path), timeout_s=240)
    profiles = [str(tmp_path / f"profile_{rank}.json") for rank in range(2)]
    command = ["export", str(tmp_path / "trace"), "--merge", profiles[0], "--merge", profiles[1]]
    assert main([*command, "--output-dir", str(tmp_path)]) == 0
    for rank in range(2):
        events = json.loads((tmp_path / "merged" / f"rank_{rank}.json").read_text(encoding="utf-8"))[
            "traceEvents"
        ]
        slices = [event for event in events if event.get("ph") == "X"]
        ours = [event for event in slices if event["pid"] == rank + _APART]
        assert len(ours) < len(slices)
        theirs = [e for e in slices if e["pid"] != rank + _APART and e["name"].startswith("gloo:all_reduce")]
        wires = [event for event in ours if event["name"] == "on the wire"]
        assert theirs and len(wires) >= STEPS
        # The profiler saw the last ones of ours, in the same order. Between its reading of the clock and ours the
        # worker may lose its core, on a busy machine for long; but not at both ends, and not each time.
        assert len(theirs) <= len(wires)
        seen, mine = spans(theirs), spans(wires)[-len(theirs) :]
        apart = np.abs(mine - seen).min(axis=1)
        assert apart.min() < 300 and np.median(apart) < 20_000
